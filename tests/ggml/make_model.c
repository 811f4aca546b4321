/* A Llama with random weights as a GGUF file, its matrices in one of ggml's types. Its output has the embedding of one
 * token for the row of another, so that one token is by far the likeliest after each: no rounding makes it another.
 *
 *   ggml-make-model FILE TYPE [LAYERS HIDDEN FEED_FORWARD VOCABULARY]
 *
 * TYPE as ggml names it: f16, bf16, q8_0, tq2_0... The token embedding is f16. */
#include <ggml.h>
#include <gguf.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  HEAD = 64,
  BYTES = 256,
  SPECIAL = 3,
  STEP = 7, /* from a token to the likeliest after it; odd */
  CONTEXT = 2048,
  NORMAL_TOKEN = 1,
  UNKNOWN_TOKEN = 2,
  CONTROL_TOKEN = 3,
  BYTE_TOKEN = 6
};

static struct { int layers, hidden, feed_forward, vocabulary; } size = {4, 512, 1536, 2048};

static unsigned long long state = 1;

/* About normal, of variance 1. */
static float number(void) {
  float sum = 0;
  for (int i = 0; i < 4; i++) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    sum += (float)(state >> 40) / (1 << 24) - 0.5f;
  }
  return sum * sqrtf(3);
}

static void matrix(struct gguf_context *file, struct ggml_context *context, const char *name, enum ggml_type type,
                   int columns, int rows, bool scaled) {
  struct ggml_tensor *tensor = ggml_new_tensor_2d(context, type, columns, rows);
  size_t count = (size_t)columns * (size_t)rows;
  float *values = malloc(count * sizeof *values);
  state = rows == size.vocabulary ? 1 : state + count; /* embedding and output begin alike */
  for (size_t i = 0; i < count; i++)
    values[i] = number() / (scaled ? sqrtf((float)columns) : 1);
  for (int row = 0; row < rows; row++) {
    int place = scaled && rows == size.vocabulary ? (STEP * row + 1) % rows : row;
    ggml_quantize_chunk(type, values + (size_t)row * (size_t)columns,
                        (char *)tensor->data + (size_t)place * ggml_row_size(type, columns), 0, 1, columns, NULL);
  }
  free(values);
  ggml_set_name(tensor, name);
  gguf_add_tensor(file, tensor);
}

static void norm(struct gguf_context *file, struct ggml_context *context, const char *name) {
  struct ggml_tensor *tensor = ggml_new_tensor_1d(context, GGML_TYPE_F32, size.hidden);
  for (int i = 0; i < size.hidden; i++)
    ((float *)tensor->data)[i] = 1;
  ggml_set_name(tensor, name);
  gguf_add_tensor(file, tensor);
}

static void layer(struct gguf_context *file, struct ggml_context *context, enum ggml_type type, int index) {
  const struct {
    const char *name;
    int columns, rows;
  } matrices[] = {{"attn_q", size.hidden, size.hidden},         {"attn_k", size.hidden, size.hidden},
                  {"attn_v", size.hidden, size.hidden},         {"attn_output", size.hidden, size.hidden},
                  {"ffn_gate", size.hidden, size.feed_forward}, {"ffn_up", size.hidden, size.feed_forward},
                  {"ffn_down", size.feed_forward, size.hidden}};
  char name[64];
  for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
    snprintf(name, sizeof name, "blk.%d.%s.weight", index, matrices[i].name);
    matrix(file, context, name, type, matrices[i].columns, matrices[i].rows, true);
  }
  snprintf(name, sizeof name, "blk.%d.attn_norm.weight", index);
  norm(file, context, name);
  snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", index);
  norm(file, context, name);
}

/* Bytes, and tokens that print as <number>. */
static void vocabulary(struct gguf_context *file) {
  size_t count = (size_t)size.vocabulary;
  char(*text)[16] = calloc(count, sizeof *text);
  const char **tokens = calloc(count, sizeof *tokens);
  float *scores = calloc(count, sizeof *scores);
  int *types = calloc(count, sizeof *types);
  for (int i = 0; i < size.vocabulary; i++) {
    static const char *const special[SPECIAL] = {"<unk>", "<s>", "</s>"};
    bool byte = i >= SPECIAL && i < SPECIAL + BYTES;
    snprintf(text[i], sizeof text[i], byte ? "<0x%02X>" : "<%d>", byte ? i - SPECIAL : i);
    tokens[i] = i < SPECIAL ? special[i] : text[i];
    types[i] = i == 0 ? UNKNOWN_TOKEN : i < SPECIAL ? CONTROL_TOKEN : byte ? BYTE_TOKEN : NORMAL_TOKEN;
    scores[i] = (float)-i;
  }
  gguf_set_val_str(file, "tokenizer.ggml.model", "llama");
  gguf_set_arr_str(file, "tokenizer.ggml.tokens", tokens, count);
  gguf_set_arr_data(file, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores, count);
  gguf_set_arr_data(file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, count);
  gguf_set_val_u32(file, "tokenizer.ggml.bos_token_id", 1);
  gguf_set_val_u32(file, "tokenizer.ggml.eos_token_id", 2);
  free(text);
  free(tokens);
  free(scores);
  free(types);
}

static void keys(struct gguf_context *file) {
  gguf_set_val_str(file, "general.architecture", "llama");
  gguf_set_val_u32(file, "llama.block_count", (uint32_t)size.layers);
  gguf_set_val_u32(file, "llama.context_length", CONTEXT);
  gguf_set_val_u32(file, "llama.embedding_length", (uint32_t)size.hidden);
  gguf_set_val_u32(file, "llama.feed_forward_length", (uint32_t)size.feed_forward);
  gguf_set_val_u32(file, "llama.attention.head_count", (uint32_t)(size.hidden / HEAD));
  gguf_set_val_u32(file, "llama.rope.dimension_count", HEAD);
  gguf_set_val_u32(file, "llama.vocab_size", (uint32_t)size.vocabulary);
  gguf_set_val_f32(file, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

static enum ggml_type type_of(const char *name) {
  for (int type = 0; type < GGML_TYPE_COUNT; type++)
    if (ggml_type_name((enum ggml_type)type) != NULL && strcmp(ggml_type_name((enum ggml_type)type), name) == 0)
      return (enum ggml_type)type;
  return GGML_TYPE_COUNT;
}

int main(int count, char **arguments) {
  enum ggml_type type = count > 2 ? type_of(arguments[2]) : GGML_TYPE_COUNT;
  if (count > 6) {
    size.layers = atoi(arguments[3]);
    size.hidden = atoi(arguments[4]);
    size.feed_forward = atoi(arguments[5]);
    size.vocabulary = atoi(arguments[6]);
  }
  if (type == GGML_TYPE_COUNT || size.vocabulary < SPECIAL + BYTES) {
    fprintf(stderr, "usage: %s FILE TYPE [LAYERS HIDDEN FEED_FORWARD VOCABULARY]\n", arguments[0]);
    return 2;
  }
  size_t weights = (size_t)size.hidden * (size_t)size.hidden * 4 + (size_t)size.hidden * (size_t)size.feed_forward * 3;
  size_t values = (size_t)size.layers * weights + 2 * (size_t)size.vocabulary * (size_t)size.hidden;
  struct ggml_context *context = ggml_init((struct ggml_init_params){.mem_size = values * 4 + ((size_t)16 << 20)});
  struct gguf_context *file = gguf_init_empty();
  if (context == NULL || file == NULL)
    return 1;
  keys(file);
  vocabulary(file);
  matrix(file, context, "token_embd.weight", GGML_TYPE_F16, size.hidden, size.vocabulary, false);
  for (int i = 0; i < size.layers; i++)
    layer(file, context, type, i);
  norm(file, context, "output_norm.weight");
  matrix(file, context, "output.weight", type, size.hidden, size.vocabulary, true);
  bool good = gguf_write_to_file(file, arguments[1], false);
  gguf_free(file);
  ggml_free(context);
  return good ? 0 : 1;
}

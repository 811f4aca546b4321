/* A model under llama.cpp, with the backends that ggml loads (GGML_BACKEND_PATH).
 *
 *   ggml-generate MODEL [DEVICE]              greedy tokens after a prompt, one line
 *   ggml-generate MODEL DEVICE|- REPETITIONS  tokens a second, the best of them: "pp64 N tg32 N", as llama-bench counts
 *
 * DEVICE: all layers there, as --device DEVICE -ngl 99. After the tokens comes the mean of their logits. $THREADS: of
 * the CPU backend, 2 where it is not set. */
#include <ggml-backend.h>
#include <llama.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 2, PROMPT = 64, TOKENS = 32, CONTEXT = 256, FIRST = 300 };

/* Of this process, where one thread computes: what else the machine does then counts little. */
static int64_t now_us(void) {
  struct timespec now;
  clock_gettime(getenv("CPU_TIME") != NULL ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static llama_token best_token(struct llama_context *context, int vocabulary) {
  const float *logits = llama_get_logits_ith(context, -1);
  llama_token best = 0;
  for (int i = 1; i < vocabulary; i++)
    if (logits[i] > logits[best])
      best = i;
  return best;
}

static bool decode(struct llama_context *context, llama_token *tokens, int count) {
  return llama_decode(context, llama_batch_get_one(tokens, count)) == 0;
}

static bool prompt(struct llama_context *context, int vocabulary) {
  llama_token tokens[PROMPT];
  for (int i = 0; i < PROMPT; i++)
    tokens[i] = (FIRST + 7 * i) % vocabulary;
  llama_memory_clear(llama_get_memory(context), true);
  return decode(context, tokens, PROMPT);
}

static double logits_sum;

static bool generate(struct llama_context *context, int vocabulary, bool say) {
  for (int i = 0; i < TOKENS; i++) {
    llama_token token = best_token(context, vocabulary);
    logits_sum += (double)llama_get_logits_ith(context, -1)[token];
    if (say)
      printf("%d%c", token, i + 1 < TOKENS ? ' ' : '\n');
    if (!decode(context, &token, 1))
      return false;
  }
  return true;
}

static bool measure(struct llama_context *context, int vocabulary, int repetitions) {
  double read = 0, written = 0;
  for (int i = 0; i < repetitions; i++) {
    int64_t begin = now_us();
    if (!prompt(context, vocabulary))
      return false;
    int64_t middle = now_us();
    if (!generate(context, vocabulary, false))
      return false;
    int64_t end = now_us();
    double reading = PROMPT * 1e6 / (double)(middle - begin), writing = TOKENS * 1e6 / (double)(end - middle);
    read = reading > read ? reading : read;
    written = writing > written ? writing : written;
  }
  printf("pp%d %.0f tg%d %.1f\n", PROMPT, read, TOKENS, written);
  return true;
}

static void quiet(enum ggml_log_level level, const char *text, void *user) {
  if (level >= GGML_LOG_LEVEL_WARN && level <= GGML_LOG_LEVEL_ERROR)
    fputs(text, stderr);
}

int main(int count, char **arguments) {
  if (count < 2)
    return 2;
  llama_log_set(quiet, NULL);
  ggml_backend_load_all();
  llama_backend_init();
  struct llama_model_params model_params = llama_model_default_params();
  ggml_backend_dev_t devices[2] = {NULL, NULL};
  if (count > 2 && strcmp(arguments[2], "-") != 0) {
    devices[0] = ggml_backend_dev_by_name(arguments[2]);
    if (devices[0] == NULL) {
      fprintf(stderr, "no device %s\n", arguments[2]);
      return 1;
    }
    model_params.devices = devices;
    model_params.n_gpu_layers = 99;
  }
  struct llama_model *model = llama_model_load_from_file(arguments[1], model_params);
  if (model == NULL)
    return 1;
  struct llama_context_params params = llama_context_default_params();
  params.n_ctx = CONTEXT;
  params.n_threads = params.n_threads_batch = getenv("THREADS") != NULL ? atoi(getenv("THREADS")) : THREADS;
  struct llama_context *context = llama_init_from_model(model, params);
  int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  bool good = context != NULL && prompt(context, vocabulary) && generate(context, vocabulary, count < 4) &&
              (count < 4 || measure(context, vocabulary, atoi(arguments[3])));
  if (good && count < 4)
    printf("%.4f\n", logits_sum / TOKENS);
  if (context != NULL)
    llama_free(context);
  llama_model_free(model);
  llama_backend_free();
  return good ? 0 : 1;
}

/* The content of a weight, back from the daemon. */
#include "../session/argument.h"
#include "../session/control.h"

#include "../../proto/gemm.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What came must be what it is said to be: it is read as if it were. */
static enum status check(struct gemmd_session *session, const struct message_weight_fetched *reply, int fd,
                         struct gemm_layout *layout) {
  const struct gemm_weight shape = {.n = reply->n,
                                    .k = reply->k,
                                    .format = (enum gemm_format)reply->format,
                                    .scale = (enum gemm_scale)reply->scale,
                                    .input = reply->input,
                                    .experts = reply->experts};
  struct error error;
  int seals = fcntl(fd, F_GET_SEALS);
  off_t size = lseek(fd, 0, SEEK_END);
  if (gemm_layout_compute(&shape, layout, &error) != STATUS_OK)
    return session_end(session, STATUS_PROTOCOL, "a fetched weight cannot be: %s", error.text);
  if (reply->bytes != layout->total_bytes || size < 0 || (uint64_t)size != reply->bytes || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0)
    return session_end(session, STATUS_PROTOCOL, "a fetched weight came in a memfd of another size");
  return STATUS_OK;
}

static enum status map(struct gemmd_session *session, const struct message_weight_fetched *reply, int fd,
                       gemmd_content *out) {
  struct gemm_layout layout;
  enum status status = check(session, reply, fd, &layout);
  if (status != STATUS_OK)
    return status;
  void *at = mmap(NULL, (size_t)reply->bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED)
    return error_set(&session->error, STATUS_SYSTEM, "mmap: %s", strerror(errno));
  *out = (gemmd_content){.n = reply->n,
                         .k = reply->k,
                         .format = (enum gemmd_format)reply->format,
                         .scale = (int)reply->scale,
                         .codes = at,
                         .scales = (const uint8_t *)at + layout.scales_offset,
                         .row_bytes = layout.row_bytes,
                         .scale_rows = layout.scale_rows,
                         .scale_columns = layout.scale_columns,
                         .input = reply->input,
                         .map = at,
                         .bytes = reply->bytes,
                         .experts = reply->experts};
  if (layout.zeros_bytes > 0)
    out->zeros = (const uint8_t *)at + layout.zeros_offset;
  if (layout.factors_bytes > 0)
    out->factors = (const float *)(const void *)((const uint8_t *)at + layout.factors_offset);
  if (reply->input & GEMM_INPUT_SCALE)
    out->x_scale = (const float *)(const void *)((const uint8_t *)at + layout.input_offset);
  if (reply->input & GEMM_INPUT_ORDER)
    out->order = (const uint32_t *)(const void *)((const uint8_t *)at + layout.order_offset);
  return STATUS_OK;
}

int gemmd_weight_fetch(gemmd_session *session, const char *name, gemmd_content *out) {
  struct message_weight_name request = {.name = ""};
  struct message_weight_fetched reply = {.bytes = 0};
  int fd = -1;
  *out = (gemmd_content){.n = 0};
  enum status status = text_copy(session, request.name, sizeof request.name, name, "name");
  struct call call = {.command = COMMAND_weight_fetch,
                      .request = &request,
                      .reply = &reply,
                      .fd = -1,
                      .reply_fds = &fd,
                      .reply_fd_count = 1,
                      .patient = true};
  if (status == STATUS_OK)
    status = control_call(session, &call);
  if (status == STATUS_OK)
    status = map(session, &reply, fd, out);
  if (fd >= 0)
    close(fd);
  return session_result(status);
}

void gemmd_content_free(gemmd_content *content) {
  if (content->map != NULL)
    munmap(content->map, (size_t)content->bytes);
  *content = (gemmd_content){.n = 0};
}

/* A pickle machine that knows allocator snapshots: events become columns and stacks become codes as they are read, so that a
 * million dictionaries are never built. Everything else is kept as a small tree and handed over at the end.
 *
 * It calls nothing and imports nothing: an opcode that could is refused. Every declared length, memo index and count is held
 * against the bytes read so far, so that memory stays in proportion to the file. Bytes are fed in pieces of any size.
 *
 * columns.py and schema.py are the reference for what each value becomes. No Python headers; plain C11, one unit:
 *
 *     state.h       values, the scanner's state, failing, growing, hashing
 *     containers.h  texts, the stack, lists, tuples, dictionaries, the memo
 *     records.h     frames, stacks and events taken out of them
 *     machine.h     the opcodes
 *     tree.h        what is left, laid out for Python
 *     scanner.c     what Python calls
 */
#include "machine.h"
#include "tree.h"

/* ---- the interface -------------------------------------------------------------------------------------------------------------- */
#define EXPORT __attribute__((visibility("default")))

EXPORT void scanner_free(Scanner *s) {
  if (!s) return;
  for (uint64_t i = 0; i < s->nodes_count; i++)
    if (s->nodes[i].kind <= DICT) free(s->nodes[i].items);
  void *owned[] = {s->pending, s->stack, s->memo, s->nodes, s->texts, s->characters, s->wide, s->reals, s->text_index.slots,
                   s->action, s->pool, s->trace_stack, s->address, s->size, s->stream, s->time_us, s->frames,
                   s->frame_indices, s->stack_ends, s->frame_index.slots, s->stack_index.slots, s->tree};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
  free(s);
}

static bool intern_names(Scanner *s) {
  struct { const char *text; uint32_t *number; } names[] = {
      {"action", &s->k_action}, {"addr", &s->k_addr}, {"device_free", &s->k_device_free}, {"size", &s->k_size},
      {"stream", &s->k_stream}, {"time_us", &s->k_time_us}, {"frames", &s->k_frames}, {"pool_id", &s->k_pool_id},
      {"filename", &s->k_filename}, {"line", &s->k_line}, {"name", &s->k_name}, {"??", &s->k_unknown}};
  uint32_t question;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) TRY(intern_text(s, names[i].text, strlen(names[i].text), names[i].number));
  TRY(intern_text(s, "?", 1, &question)); /* the action of an event that names none in text; see action_code */
  for (; s->actions < sizeof ACTIONS / sizeof *ACTIONS; s->actions++)
    TRY(intern_text(s, ACTIONS[s->actions], strlen(ACTIONS[s->actions]), &s->action_texts[s->actions]));
  APPEND(s, stack_ends, 0);
  return true;
}

EXPORT Scanner *scanner_new(void) {
  Scanner *s = calloc(1, sizeof *s);
  if (s && !intern_names(s)) {
    scanner_free(s);
    s = NULL;
  }
  return s;
}

/* Run all whole opcodes in `bytes`; tell how many bytes they took. */
static bool run_whole(Scanner *s, const uint8_t *bytes, uint64_t count, uint64_t *taken) {
  uint64_t at = 0, length;
  while (at < count && !s->finished) {
    TRY(length_of(s, bytes + at, count - at, &length));
    if (!length || length > count - at) break;
    TRY(run(s, bytes + at, length));
    at += length;
  }
  *taken = at;
  return true;
}

/* Feed the next bytes. Returns 1 when the pickle has ended, 0 when it wants more, -1 when it failed (scanner_error). */
EXPORT int scanner_feed(Scanner *s, const uint8_t *bytes, uint64_t count) {
  if (s->failed) return -1;
  uint64_t taken = 0;
  s->fed += count;
  while (s->pending_count && !s->finished) { /* finish the opcode that was cut off, with as few further bytes as it takes */
    uint64_t length;
    if (!length_of(s, s->pending, s->pending_count, &length)) return -1;
    uint64_t wanted = length ? length : s->pending_count + 1;
    uint64_t more = wanted > s->pending_count ? wanted - s->pending_count : 0;
    if (more > count) more = count;
    if (!RESERVE(s, pending, more)) return -1;
    memcpy(s->pending + s->pending_count, bytes, more);
    s->pending_count += more;
    bytes += more;
    count -= more;
    if (length && s->pending_count >= length) {
      if (!run(s, s->pending, length)) return -1;
      s->pending_count = 0;
    } else if (!count) return 0;
  }
  if (!s->finished && !run_whole(s, bytes, count, &taken)) return -1;
  if (s->finished) return 1;
  if (!RESERVE(s, pending, count - taken)) return -1;
  if (count > taken) memcpy(s->pending, bytes + taken, count - taken);
  s->pending_count = count - taken;
  return 0;
}

/* After the end: lay out the tree and let go of all that only reading needed. Returns 0, or -1 when it failed. */
EXPORT int scanner_finish(Scanner *s) {
  if (s->failed || !s->finished) return -1;
  if (!emit_value(s, s->root, 0)) return -1;
  for (uint64_t i = 0; i < s->nodes_count; i++)
    if (s->nodes[i].kind <= DICT) free(s->nodes[i].items);
  void **owned[] = {(void **)&s->nodes, (void **)&s->memo, (void **)&s->stack, (void **)&s->pending};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
    free(*owned[i]);
    *owned[i] = NULL;
  }
  s->nodes_count = 0;
  return 0;
}

EXPORT const char *scanner_error(const Scanner *s) { return s->error; }

/* Where the results lie and how long they are; they live until scanner_free. */
typedef struct {
  const uint8_t *action;
  const int64_t *address, *size, *stream, *time_us;
  const int16_t *pool;
  const int32_t *trace_stack;
  uint64_t rows;
  const int64_t *tree;
  uint64_t tree_count;
  const int32_t *frame_indices;
  uint64_t frame_indices_count;
  const int64_t *stack_ends;
  uint64_t stack_ends_count;
  const struct Frame *frames;
  uint64_t frames_count;
  const Text *texts;
  uint64_t texts_count;
  const char *characters;
  uint64_t characters_count;
  const uint32_t *action_texts;
  uint64_t actions;
  const int64_t *pools;
  uint64_t pool_count;
  uint64_t foreign;
} Results;

EXPORT void scanner_results(const Scanner *s, Results *r) {
  *r = (Results){s->action, s->address, s->size, s->stream, s->time_us, s->pool, s->trace_stack, s->rows,
                 s->tree, s->tree_count, s->frame_indices, s->frame_indices_count, s->stack_ends, s->stack_ends_count,
                 s->frames, s->frames_count, s->texts, s->texts_count, s->characters, s->characters_count,
                 s->action_texts, s->actions, &s->pools[0][0], s->pool_count, s->foreign};
}

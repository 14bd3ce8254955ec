/* A pickle machine that knows allocator snapshots: events become columns and stacks become codes as they are read, so that a
 * million dictionaries are never built. Everything else is kept as a small tree and handed over at the end.
 *
 * It calls nothing and imports nothing: an opcode that could is refused. Every declared length, memo index and count is held
 * against the bytes read so far, so that memory stays in proportion to the file. Bytes are fed in pieces of any size.
 *
 * columns.py and schema.py are the reference for what each value becomes. No Python headers; plain C11.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ----------------------------------------------------------------------------------------------------------
 * One value is 64 bits: a tag in the low four, a payload above. */
typedef uint64_t Value;
enum { NONE, BOOL, INT, WIDE, REAL, TEXT, OPAQUE, PAIR, NODE, MARK };
#define TAG(v) ((int)((v) & 15))
#define PAYLOAD(v) ((int64_t)(v) >> 4)
#define MAKE(tag, payload) ((Value)((uint64_t)(payload) << 4 | (tag)))
#define FITS60(n) ((n) >= -(1LL << 59) && (n) < (1LL << 59))

/* A container. What an event, a frame or a stack was made of is let go; only its number stays. */
enum { LIST, TUPLE, DICT, EVENT, FRAME, STACK };
typedef struct {
  union {
    Value *items; /* LIST, TUPLE: the items; DICT: keys and values in turn */
    uint64_t code; /* EVENT: row; FRAME, STACK: index */
  };
  uint32_t length;
  uint32_t kind : 3, capacity : 29;
} Node;

typedef struct {
  uint64_t start;
  uint32_t length;
} Text;

/* Open addressing from 64-bit hashes to 32-bit numbers; equality is asked of the owner. */
typedef struct {
  uint32_t *slots; /* number + 1, 0 is free */
  uint64_t capacity, used;
} Index;

#define GROWING(type, name) \
  type *name;               \
  uint64_t name##_count, name##_capacity

typedef struct Scanner {
  char error[256];
  bool failed, finished;
  uint64_t fed; /* bytes seen so far: the measure of every limit */

  GROWING(uint8_t, pending); /* an opcode whose end has not been fed yet */
  GROWING(Value, stack);
  GROWING(Value, memo);
  GROWING(Node, nodes);
  GROWING(Text, texts);
  GROWING(char, characters);
  GROWING(int64_t, wide); /* integers that need more than 60 bits */
  GROWING(double, reals);
  Index text_index;

  /* the columns, one entry an event */
  uint8_t *action;
  int16_t *pool;
  int32_t *trace_stack;
  int64_t *address, *size, *stream, *time_us;
  uint64_t rows, rows_capacity;
  uint32_t action_texts[256];
  uint32_t actions;
  int64_t pools[256][2];
  uint32_t pool_count;
  uint64_t foreign; /* values in events that are no 64-bit integers */

  /* frames: text, line, text; stacks: ends and frame indices */
  struct Frame { uint32_t filename, name; int64_t line; } *frames;
  uint64_t frames_count, frames_capacity;
  GROWING(int32_t, frame_indices);
  GROWING(int64_t, stack_ends);
  Index frame_index, stack_index;

  GROWING(int64_t, tree);
  uint64_t visited; /* items looked at while the tree was laid out */
  Value root;

  /* texts that the schema asks for, interned first */
  uint32_t k_action, k_addr, k_device_free, k_size, k_stream, k_time_us, k_frames, k_pool_id;
  uint32_t k_filename, k_line, k_name, k_unknown;
} Scanner;

static const char *const ACTIONS[] = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
                                      "segment_map", "segment_unmap", "oom", "snapshot", "annotate"};
enum { DEEPEST_STACK = 4096, DEEPEST_TREE = 24, MOST_CODES = 255 };
static const uint64_t FREE_ITEMS = 1 << 16;      /* containers and stack entries that any file may have */
static const uint64_t BYTES_PER_CONTAINER = 8;   /* PyTorch's own files spend 20 and more */
static const uint64_t LONGEST_ARGUMENT = 64 << 20; /* of one opcode; real texts are paths and names */

/* ---- failing, growing, hashing --------------------------------------------------------------------------------------- */
#define FAIL(s, ...)                                                              \
  do {                                                                            \
    if (!(s)->failed) snprintf((s)->error, sizeof (s)->error, __VA_ARGS__);       \
    (s)->failed = true;                                                           \
    return false;                                                                 \
  } while (0)
#define TRY(call) \
  do {            \
    if (!(call)) return false; \
  } while (0)

static bool grow(Scanner *s, void **items, uint64_t *capacity, uint64_t wanted, size_t width) {
  if (wanted <= *capacity) return true;
  uint64_t next = *capacity + *capacity / 2 + 64;
  if (next < wanted) next = wanted;
  void *moved = realloc(*items, next * width);
  if (!moved) FAIL(s, "there is not enough memory for it");
  *items = moved;
  *capacity = next;
  return true;
}
#define RESERVE(s, name, extra) \
  grow(s, (void **)&(s)->name, &(s)->name##_capacity, (s)->name##_count + (extra), sizeof *(s)->name)
#define APPEND(s, name, ...)                             \
  do {                                                   \
    TRY(RESERVE(s, name, 1));                            \
    (s)->name[(s)->name##_count++] = (__VA_ARGS__);      \
  } while (0)

static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

static uint64_t hash_bytes(const void *bytes, size_t length) {
  uint64_t hash = length, word;
  const uint8_t *at = bytes;
  for (; length >= 8; at += 8, length -= 8) {
    memcpy(&word, at, 8);
    hash = mix(hash, word);
  }
  word = 0;
  memcpy(&word, at, length);
  return mix(mix(hash, word), 0x1234567);
}

typedef bool (*Equal)(const Scanner *, uint32_t number, const void *wanted);
typedef uint64_t (*Hash)(const Scanner *, uint32_t number);

/* The slot of the number that equals `wanted`, or the free slot where it belongs. */
static bool find_slot(Scanner *s, Index *index, uint64_t hash, Equal equal, Hash rehash, const void *wanted, uint32_t **slot) {
  if (index->used * 2 >= index->capacity) {
    uint64_t capacity = index->capacity ? index->capacity * 2 : 1024;
    uint32_t *slots = calloc(capacity, sizeof *slots);
    if (!slots) FAIL(s, "there is not enough memory for it");
    for (uint64_t i = 0; i < index->capacity; i++)
      if (index->slots[i]) {
        uint64_t at = rehash(s, index->slots[i] - 1) & (capacity - 1);
        while (slots[at]) at = (at + 1) & (capacity - 1);
        slots[at] = index->slots[i];
      }
    free(index->slots);
    index->slots = slots;
    index->capacity = capacity;
  }
  uint64_t at = hash & (index->capacity - 1);
  while (index->slots[at] && !equal(s, index->slots[at] - 1, wanted)) at = (at + 1) & (index->capacity - 1);
  *slot = &index->slots[at];
  return true;
}

/* ---- texts ------------------------------------------------------------------------------------------------------------ */
struct Bytes { const char *start; uint64_t length; };

static bool text_equal(const Scanner *s, uint32_t number, const void *wanted) {
  const struct Bytes *w = wanted;
  return s->texts[number].length == w->length && !memcmp(s->characters + s->texts[number].start, w->start, w->length);
}
static uint64_t text_hash(const Scanner *s, uint32_t number) {
  return hash_bytes(s->characters + s->texts[number].start, s->texts[number].length);
}
static bool intern_text(Scanner *s, const char *start, uint64_t length, uint32_t *number) {
  struct Bytes wanted = {start, length};
  uint32_t *slot;
  TRY(find_slot(s, &s->text_index, hash_bytes(start, length), text_equal, text_hash, &wanted, &slot));
  if (!*slot) {
    if (s->texts_count >= UINT32_MAX - 1) FAIL(s, "it holds too many texts");
    uint64_t at = s->characters_count;
    TRY(RESERVE(s, characters, length + 1));
    memcpy(s->characters + at, start, length);
    s->characters_count += length;
    APPEND(s, texts, (Text){at, (uint32_t)length});
    *slot = (uint32_t)s->texts_count;
    s->text_index.used++;
  }
  *number = *slot - 1;
  return true;
}

/* ---- the stack and the containers ------------------------------------------------------------------------------------- */
static bool push(Scanner *s, Value value) {
  if (s->stack_count >= FREE_ITEMS * 16 + s->fed / BYTES_PER_CONTAINER) FAIL(s, "it piles up more values than a snapshot needs");
  APPEND(s, stack, value);
  return true;
}
static bool pop(Scanner *s, Value *value) {
  if (!s->stack_count || TAG(s->stack[s->stack_count - 1]) == MARK) FAIL(s, "an opcode finds no value");
  *value = s->stack[--s->stack_count];
  return true;
}
/* The values above the topmost mark; the mark goes, the values stay where they lie until the next push. */
static bool pop_to_mark(Scanner *s, Value **values, uint64_t *count) {
  uint64_t at = s->stack_count;
  while (at && TAG(s->stack[at - 1]) != MARK) at--;
  if (!at) FAIL(s, "an opcode finds no mark");
  *values = s->stack + at;
  *count = s->stack_count - at;
  s->stack_count = at - 1;
  return true;
}
static bool push_integer(Scanner *s, int64_t number) {
  if (FITS60(number)) return push(s, MAKE(INT, number));
  APPEND(s, wide, number);
  return push(s, MAKE(WIDE, s->wide_count - 1));
}
static bool push_node(Scanner *s, unsigned kind) {
  if (s->nodes_count >= FREE_ITEMS + s->fed / BYTES_PER_CONTAINER) FAIL(s, "it holds more containers than its size allows");
  APPEND(s, nodes, (Node){.kind = kind & 7u});
  return push(s, MAKE(NODE, s->nodes_count - 1));
}
static Node *node_of(Scanner *s, Value value) { return TAG(value) == NODE ? &s->nodes[PAYLOAD(value)] : NULL; }

static bool extend(Scanner *s, Node *node, const Value *values, uint64_t count) {
  uint64_t length = (uint64_t)node->length + count;
  if (length >= 1u << 28) FAIL(s, "one of its lists is too long");
  if (length > node->capacity) {
    uint64_t capacity = node->length ? length + length / 2 : length;
    if (capacity >= 1u << 29) capacity = (1u << 29) - 1;
    Value *moved = realloc(node->items, capacity * sizeof *moved);
    if (!moved) FAIL(s, "there is not enough memory for it");
    node->items = moved;
    node->capacity = capacity & ((1u << 29) - 1);
  }
  if (count) memcpy(node->items + node->length, values, count * sizeof *values);
  node->length = (uint32_t)length;
  return true;
}
/* Keep only a number of what was a container. */
static void settle(Node *node, unsigned kind, uint64_t code) {
  free(node->items);
  node->kind = kind & 7u;
  node->capacity = 0;
  node->length = 0;
  node->code = code;
}

/* ---- frames and stacks -------------------------------------------------------------------------------------------------- */
static bool frame_equal(const Scanner *s, uint32_t number, const void *wanted) {
  const struct Frame *a = &s->frames[number], *b = wanted;
  return a->filename == b->filename && a->name == b->name && a->line == b->line;
}
static uint64_t hash_frame(const struct Frame *f) { return mix(mix(mix(1, f->filename), f->name), (uint64_t)f->line); }
static uint64_t frame_hash(const Scanner *s, uint32_t number) { return hash_frame(&s->frames[number]); }

static bool integer_of(const Scanner *s, Value value, int64_t *number) {
  if (TAG(value) == INT || TAG(value) == BOOL) *number = PAYLOAD(value);
  else if (TAG(value) == WIDE && PAYLOAD(value) >= 0) *number = s->wide[PAYLOAD(value)];
  else return false;
  return true;
}
static bool intern_frame(Scanner *s, const Value *pairs, uint64_t count, uint32_t *number) {
  struct Frame frame = {s->k_unknown, s->k_unknown, 0};
  for (uint64_t i = 0; i + 1 < count; i += 2) {
    if (TAG(pairs[i]) != TEXT) continue;
    uint32_t key = (uint32_t)PAYLOAD(pairs[i]);
    bool is_text = TAG(pairs[i + 1]) == TEXT;
    if (key == s->k_filename) frame.filename = is_text ? (uint32_t)PAYLOAD(pairs[i + 1]) : s->k_unknown;
    else if (key == s->k_name) frame.name = is_text ? (uint32_t)PAYLOAD(pairs[i + 1]) : s->k_unknown;
    else if (key == s->k_line && !integer_of(s, pairs[i + 1], &frame.line)) frame.line = 0;
  }
  uint32_t *slot;
  TRY(find_slot(s, &s->frame_index, hash_frame(&frame), frame_equal, frame_hash, &frame, &slot));
  if (!*slot) {
    TRY(grow(s, (void **)&s->frames, &s->frames_capacity, s->frames_count + 1, sizeof *s->frames));
    s->frames[s->frames_count++] = frame;
    *slot = (uint32_t)s->frames_count;
    s->frame_index.used++;
  }
  *number = *slot - 1;
  return true;
}

struct Indices { const int32_t *start; uint64_t length; };
static bool stack_equal(const Scanner *s, uint32_t number, const void *wanted) {
  const struct Indices *w = wanted;
  int64_t start = s->stack_ends[number], end = s->stack_ends[number + 1];
  return (uint64_t)(end - start) == w->length && !memcmp(s->frame_indices + start, w->start, w->length * sizeof *w->start);
}
static uint64_t stack_hash(const Scanner *s, uint32_t number) {
  int64_t start = s->stack_ends[number], end = s->stack_ends[number + 1];
  return hash_bytes(s->frame_indices + start, (size_t)(end - start) * sizeof *s->frame_indices);
}
/* The code of the stack that a list or tuple of frames is; -1 for anything else and for an empty one. */
static bool stack_code(Scanner *s, Value value, int32_t *code) {
  *code = -1;
  Node *node = node_of(s, value);
  if (!node) return true;
  if (node->kind == STACK) *code = (int32_t)node->code;
  if ((node->kind != LIST && node->kind != TUPLE) || !node->length) return true;
  uint64_t length = node->length < DEEPEST_STACK ? node->length : DEEPEST_STACK;
  TRY(RESERVE(s, frame_indices, length));
  int32_t *indices = s->frame_indices + s->frame_indices_count; /* in place: kept when the stack is new */
  for (uint64_t i = 0; i < length; i++) {
    Node *frame = node_of(s, node->items[i]);
    uint32_t number;
    if (frame && frame->kind == FRAME) number = (uint32_t)frame->code;
    else if (frame && frame->kind == DICT) TRY(intern_frame(s, frame->items, frame->length, &number));
    else TRY(intern_frame(s, NULL, 0, &number));
    indices[i] = (int32_t)number;
  }
  struct Indices wanted = {indices, length};
  uint32_t *slot;
  TRY(find_slot(s, &s->stack_index, hash_bytes(indices, length * sizeof *indices), stack_equal, stack_hash, &wanted, &slot));
  if (!*slot) {
    if (s->stack_ends_count > INT32_MAX - 1) FAIL(s, "it holds too many stacks");
    s->frame_indices_count += length;
    APPEND(s, stack_ends, (int64_t)s->frame_indices_count);
    *slot = (uint32_t)s->stack_ends_count - 1;
    s->stack_index.used++;
  }
  *code = (int32_t)(*slot - 1);
  settle(node, STACK, (uint64_t)*code);
  return true;
}

/* ---- events --------------------------------------------------------------------------------------------------------------- */
static bool reserve_rows(Scanner *s) {
  if (s->rows < s->rows_capacity) return true;
  uint64_t capacity = s->rows_capacity + s->rows_capacity / 2 + 1024;
#define WIDEN(column)                                                   \
  do {                                                                  \
    void *moved = realloc(s->column, capacity * sizeof *s->column);     \
    if (!moved) FAIL(s, "there is not enough memory for it");           \
    s->column = moved;                                                  \
  } while (0)
  WIDEN(action); WIDEN(pool); WIDEN(trace_stack); WIDEN(address); WIDEN(size); WIDEN(stream); WIDEN(time_us);
#undef WIDEN
  s->rows_capacity = capacity;
  return true;
}
static bool action_code(Scanner *s, Value value, uint8_t *code) {
  uint32_t text = TAG(value) == TEXT ? (uint32_t)PAYLOAD(value) : s->k_unknown + 1; /* "?", interned behind "??" */
  for (uint32_t i = 0; i < s->actions; i++)
    if (s->action_texts[i] == text) {
      *code = (uint8_t)i;
      return true;
    }
  if (s->actions > MOST_CODES) FAIL(s, "the trace names more than %d different actions", MOST_CODES);
  *code = (uint8_t)s->actions;
  s->action_texts[s->actions++] = text;
  return true;
}
static bool pool_code(Scanner *s, Value value, int16_t *code) {
  int64_t first = -1, second = -1;
  *code = -1;
  Node *node = node_of(s, value);
  if (TAG(value) == PAIR) {
    first = PAYLOAD(value) >> 30;
    second = PAYLOAD(value) & ((1 << 30) - 1);
  } else if (node && (node->kind == LIST || node->kind == TUPLE) && node->length == 2) {
    if (!integer_of(s, node->items[0], &first) || !integer_of(s, node->items[1], &second)) return true;
  }
  if (first < 0 || second < 0) return true;
  uint32_t i = 0;
  while (i < s->pool_count && (s->pools[i][0] != first || s->pools[i][1] != second)) i++;
  if (i == s->pool_count) {
    if (s->pool_count > MOST_CODES) FAIL(s, "the trace names more than %d different pools", MOST_CODES);
    s->pools[s->pool_count][0] = first;
    s->pools[s->pool_count++][1] = second;
  }
  *code = (int16_t)i;
  return true;
}
static void column(Scanner *s, Value value, int64_t fallback, int64_t *entry) {
  if (!integer_of(s, value, entry)) {
    *entry = fallback;
    s->foreign++;
  }
}
static bool add_event(Scanner *s, const Value *pairs, uint64_t count, Value action, uint64_t *row) {
  TRY(reserve_rows(s));
  uint64_t r = *row = s->rows++;
  s->address[r] = s->size[r] = s->stream[r] = 0;
  s->time_us[r] = -1;
  s->pool[r] = -1;
  s->trace_stack[r] = -1;
  /* An oom has no address; what the driver had left stands in its place. */
  Value address = MAKE(INT, 0), device_free = MAKE(INT, 0);
  bool has_address = false;
  TRY(action_code(s, action, &s->action[r]));
  for (uint64_t i = 0; i + 1 < count; i += 2) {
    if (TAG(pairs[i]) != TEXT) continue;
    uint32_t key = (uint32_t)PAYLOAD(pairs[i]);
    Value value = pairs[i + 1];
    if (key == s->k_addr) address = value, has_address = true;
    else if (key == s->k_device_free) device_free = value;
    else if (key == s->k_size) column(s, value, 0, &s->size[r]);
    else if (key == s->k_stream) column(s, value, 0, &s->stream[r]);
    else if (key == s->k_time_us) column(s, value, -1, &s->time_us[r]);
    else if (key == s->k_pool_id) TRY(pool_code(s, value, &s->pool[r]));
    else if (key == s->k_frames) TRY(stack_code(s, value, &s->trace_stack[r]));
  }
  column(s, has_address ? address : device_free, 0, &s->address[r]);
  return true;
}

/* SETITEM and SETITEMS: a dictionary that names an action is an event, one with a file and a function is a frame. */
static bool set_items(Scanner *s, Value target, const Value *pairs, uint64_t count) {
  Node *node = node_of(s, target);
  if (!node || node->kind == LIST || node->kind == TUPLE || node->kind == STACK) FAIL(s, "it sets items of what is no dictionary");
  if (node->kind != DICT) FAIL(s, "it changes an event or a frame after it was complete, which PyTorch never does");
  if (count % 2) FAIL(s, "a dictionary gets a key without a value");
  if (!node->length) {
    bool has_file = false, has_name = false;
    for (uint64_t i = 0; i < count; i += 2) {
      if (TAG(pairs[i]) != TEXT) continue;
      uint32_t key = (uint32_t)PAYLOAD(pairs[i]);
      if (key == s->k_action) {
        uint64_t row;
        TRY(add_event(s, pairs, count, pairs[i + 1], &row));
        settle(node_of(s, target), EVENT, row);
        return true;
      }
      has_file |= key == s->k_filename;
      has_name |= key == s->k_name;
    }
    if (has_file && has_name) {
      uint32_t number;
      TRY(intern_frame(s, pairs, count, &number));
      settle(node_of(s, target), FRAME, number);
      return true;
    }
  }
  return extend(s, node, pairs, count);
}
static bool append_items(Scanner *s, Value target, const Value *values, uint64_t count) {
  Node *node = node_of(s, target);
  if (node && node->kind == STACK) FAIL(s, "it changes a stack after an event used it, which PyTorch never does");
  if (!node || node->kind != LIST) FAIL(s, "it appends to what is no list");
  return extend(s, node, values, count);
}

/* ---- tuples, memo ---------------------------------------------------------------------------------------------------------- */
static bool push_tuple(Scanner *s, const Value *values, uint64_t count) {
  if (count == 2 && TAG(values[0]) == INT && TAG(values[1]) == INT) {
    int64_t first = PAYLOAD(values[0]), second = PAYLOAD(values[1]);
    /* A pool id; a graph's second half counts up and the first is a pointer-sized counter that stays small. */
    if (first >= 0 && first < 1 << 29 && second >= 0 && second < 1 << 30) return push(s, MAKE(PAIR, first << 30 | second));
  }
  Node node = {.kind = TUPLE};
  TRY(extend(s, &node, values, count)); /* before pushing, which may move the stack */
  if (!push_node(s, TUPLE)) {
    free(node.items);
    return false;
  }
  s->nodes[s->nodes_count - 1] = node;
  return true;
}
static bool put(Scanner *s, uint64_t index) {
  if (!s->stack_count || TAG(s->stack[s->stack_count - 1]) == MARK) FAIL(s, "an opcode finds no value");
  if (index > s->fed) FAIL(s, "it numbers a value beyond its own length");
  if (index >= s->memo_count) {
    TRY(RESERVE(s, memo, index + 1 - s->memo_count));
    memset(s->memo + s->memo_count, 0xFF, (index + 1 - s->memo_count) * sizeof *s->memo); /* tag 15: never put */
    s->memo_count = index + 1;
  }
  s->memo[index] = s->stack[s->stack_count - 1];
  return true;
}
static bool get(Scanner *s, uint64_t index) {
  if (index >= s->memo_count || TAG(s->memo[index]) == 15) FAIL(s, "it refers to a value that was never numbered");
  return push(s, s->memo[index]);
}

/* ---- opcodes ----------------------------------------------------------------------------------------------------------------- */
static uint64_t little(const uint8_t *at, int width) {
  uint64_t number = 0;
  for (int i = 0; i < width; i++) number |= (uint64_t)at[i] << 8 * i;
  return number;
}
/* LONG1, LONG4: two's complement of any length; what needs more than 64 bits is a WIDE without a value. */
static bool push_long(Scanner *s, const uint8_t *at, uint64_t length) {
  uint8_t sign = length && at[length - 1] & 0x80 ? 0xFF : 0;
  while (length > 8 && at[length - 1] == sign) length--;
  if (length > 8 || (length == 8 && (at[7] ^ sign) & 0x80)) return push(s, MAKE(WIDE, -1));
  uint64_t number = little(at, (int)length);
  if (length < 8 && sign) number |= ~0ULL << 8 * length;
  return push_integer(s, (int64_t)number);
}
static double big_endian_double(const uint8_t *at) {
  uint64_t bits = 0;
  for (int i = 0; i < 8; i++) bits = bits << 8 | at[i];
  double number;
  memcpy(&number, &bits, 8);
  return number;
}

/* What follows an opcode: a fixed number of bytes, or a length of 1, 4 or 8 bytes and that many more. */
enum { PREFIX1 = -1, PREFIX4 = -4, PREFIX8 = -8, LINES2 = -20, NOT_AN_OPCODE = -99 };
static int argument_of(uint8_t opcode) {
  switch (opcode) {
    case '(': case ')': case '.': case '0': case '1': case '2': case 'N': case ']': case '}': case 'a': case 'e': case 'l':
    case 'd': case 's': case 't': case 'u': case 0x85: case 0x86: case 0x87: case 0x88: case 0x89: case 0x94:
    case 'R': case 'b': case 'o': case 'Q': case 0x81: case 0x92: case 0x93: case 0x97: case 0x98: case 0x8f: case 0x90: case 0x91:
      return 0;
    case 'K': case 'h': case 'q': case 0x80: case 0x82: return 1;
    case 'M': case 0x83: return 2;
    case 'J': case 'j': case 'r': case 0x84: return 4;
    case 'G': case 0x95: return 8;
    case 'U': case 'C': case 0x8a: case 0x8c: return PREFIX1;
    case 'T': case 'B': case 'X': case 0x8b: return PREFIX4;
    case 0x8d: case 0x8e: case 0x96: return PREFIX8;
    case 'c': case 'i': return LINES2;
    default: return NOT_AN_OPCODE;
  }
}
/* How long the whole opcode is. 0: more bytes are needed to tell. */
static bool length_of(Scanner *s, const uint8_t *at, uint64_t available, uint64_t *length) {
  int argument = argument_of(at[0]);
  *length = 0;
  if (argument >= 0) {
    *length = 1 + (uint64_t)argument;
  } else if (argument == LINES2) { /* module and name, each ended by a newline */
    const uint8_t *first = memchr(at + 1, '\n', available - 1);
    const uint8_t *second = first ? memchr(first + 1, '\n', available - (uint64_t)(first + 1 - at)) : NULL;
    if (second) *length = (uint64_t)(second + 1 - at);
    else if (available > 4096) FAIL(s, "it asks to import a name without an end, which is refused");
  } else if (argument == NOT_AN_OPCODE) {
    FAIL(s, "byte 0x%02x is no opcode", at[0]);
  } else {
    uint64_t prefix = (uint64_t)-argument;
    if (available > prefix) {
      uint64_t rest = little(at + 1, (int)prefix);
      if (rest > LONGEST_ARGUMENT) FAIL(s, "it declares a value of %llu bytes", (unsigned long long)rest);
      *length = 1 + prefix + rest;
    }
  }
  return true;
}

static bool refuse_import(Scanner *s, const char *module, int module_length, const char *name, int name_length) {
  FAIL(s, "it asks to import '%.*s'.'%.*s', which is refused", module_length > 60 ? 60 : module_length, module,
       name_length > 60 ? 60 : name_length, name);
}

/* Run one whole opcode. */
static bool run(Scanner *s, const uint8_t *at, uint64_t length) {
  const uint8_t *argument = at + 1;
  Value value, target, *values;
  uint64_t count;
  uint32_t text;
  switch (at[0]) {
    case 0x80: /* PROTO */
      if (argument[0] > 5) FAIL(s, "its pickle protocol %d is unknown", argument[0]);
      return true;
    case 0x95: return true; /* FRAME: only a hint for buffering */
    case '(': return push(s, MAKE(MARK, 0));
    case '0': /* POP takes a mark as well */
      if (!s->stack_count) FAIL(s, "an opcode finds no value");
      s->stack_count--;
      return true;
    case '1': return pop_to_mark(s, &values, &count);
    case '2':
      TRY(pop(s, &value));
      return push(s, value) && push(s, value);
    case 'N': return push(s, MAKE(NONE, 0));
    case 0x88: return push(s, MAKE(BOOL, 1));
    case 0x89: return push(s, MAKE(BOOL, 0));
    case 'K': return push(s, MAKE(INT, argument[0]));
    case 'M': return push(s, MAKE(INT, little(argument, 2)));
    case 'J': return push(s, MAKE(INT, (int64_t)(int32_t)little(argument, 4)));
    case 0x8a: return push_long(s, argument + 1, length - 2);
    case 0x8b: return push_long(s, argument + 4, length - 5);
    case 'G':
      APPEND(s, reals, big_endian_double(argument));
      return push(s, MAKE(REAL, s->reals_count - 1));
    case 'U': case 0x8c:
      TRY(intern_text(s, (const char *)argument + 1, length - 2, &text));
      return push(s, MAKE(TEXT, text));
    case 'T': case 'X':
      TRY(intern_text(s, (const char *)argument + 4, length - 5, &text));
      return push(s, MAKE(TEXT, text));
    case 0x8d:
      TRY(intern_text(s, (const char *)argument + 8, length - 9, &text));
      return push(s, MAKE(TEXT, text));
    case 'C': case 'B': case 0x8e: case 0x96: case 0x8f: /* bytes and sets: nothing of a snapshot */
      return push(s, MAKE(OPAQUE, 0));
    case 0x90: /* ADDITEMS */
      return pop_to_mark(s, &values, &count);
    case 0x91: /* FROZENSET */
      return pop_to_mark(s, &values, &count) && push(s, MAKE(OPAQUE, 0));
    case ']': return push_node(s, LIST);
    case '}': return push_node(s, DICT);
    case ')': return push_tuple(s, NULL, 0);
    case 0x85: case 0x86: case 0x87: {
      Value items[3];
      int wanted = at[0] - 0x84;
      for (int i = wanted; i--;) TRY(pop(s, &items[i]));
      return push_tuple(s, items, (uint64_t)wanted);
    }
    case 't': return pop_to_mark(s, &values, &count) && push_tuple(s, values, count);
    case 'l': case 'd': {
      TRY(pop_to_mark(s, &values, &count));
      if (at[0] == 'd' && count % 2) FAIL(s, "a dictionary gets a key without a value");
      Value *copy = malloc(count * sizeof *copy + 1);
      if (!copy) FAIL(s, "there is not enough memory for it");
      if (count) memcpy(copy, values, count * sizeof *copy);
      bool done = push_node(s, at[0] == 'l' ? LIST : DICT);
      target = done ? s->stack[s->stack_count - 1] : 0;
      if (done && count) done = at[0] == 'l' ? append_items(s, target, copy, count) : set_items(s, target, copy, count);
      free(copy);
      return done;
    }
    case 'a':
      TRY(pop(s, &value) && pop(s, &target));
      return append_items(s, target, &value, 1) && push(s, target);
    case 'e':
      TRY(pop_to_mark(s, &values, &count) && pop(s, &target));
      return append_items(s, target, values, count) && push(s, target);
    case 's': {
      Value pair[2];
      TRY(pop(s, &pair[1]) && pop(s, &pair[0]) && pop(s, &target));
      return set_items(s, target, pair, 2) && push(s, target);
    }
    case 'u':
      TRY(pop_to_mark(s, &values, &count) && pop(s, &target));
      return set_items(s, target, values, count) && push(s, target);
    case 0x94: return put(s, s->memo_count);
    case 'q': return put(s, argument[0]);
    case 'r': return put(s, little(argument, 4));
    case 'h': return get(s, argument[0]);
    case 'j': return get(s, little(argument, 4));
    case '.':
      TRY(pop(s, &s->root));
      s->finished = true;
      return true;
    case 'c': case 'i': {
      const char *module = (const char *)argument, *end = (const char *)at + length - 1;
      const char *middle = memchr(module, '\n', (size_t)(end - module));
      return refuse_import(s, module, (int)(middle - module), middle + 1, (int)(end - middle - 1));
    }
    case 0x93: /* STACK_GLOBAL */
      TRY(pop(s, &value) && pop(s, &target));
      if (TAG(value) == TEXT && TAG(target) == TEXT) {
        Text module = s->texts[PAYLOAD(target)], name = s->texts[PAYLOAD(value)];
        return refuse_import(s, s->characters + module.start, (int)module.length, s->characters + name.start, (int)name.length);
      }
      FAIL(s, "it asks to import something without a name, which is refused");
    case 'Q': FAIL(s, "it refers to an outside object, which is refused");
    case 0x82: case 0x83: case 0x84: FAIL(s, "it asks for a registered extension, which is refused");
    case 0x97: case 0x98: FAIL(s, "it asks for an outside buffer, which is refused");
    default: FAIL(s, "it asks to build or call something, which is refused"); /* R b o 0x81 0x92 */
  }
}

/* ---- the tree: what is left when events, frames and stacks are taken out ------------------------------------------------------ */
enum { T_NONE, T_FALSE, T_TRUE, T_INT, T_REAL, T_TEXT, T_OPAQUE, T_LIST, T_TUPLE, T_DICT, T_EVENTS, T_STACK, T_BIG };

static bool emit(Scanner *s, int64_t word) {
  APPEND(s, tree, word);
  return true;
}
static bool emit_value(Scanner *s, Value value, int depth);

/* A list of events: its length, how many of its items are events, then runs of consecutive rows. */
static bool emit_events(Scanner *s, const Node *list) {
  TRY(emit(s, T_EVENTS) && emit(s, list->length));
  uint64_t runs_at = s->tree_count, runs = 0;
  int64_t next_row = -1;
  TRY(emit(s, 0));
  for (uint32_t i = 0; i < list->length; i++) {
    const Node *item = node_of(s, list->items[i]);
    if (!item || item->kind != EVENT) continue;
    int64_t row = (int64_t)item->code;
    if (row == next_row) s->tree[s->tree_count - 1]++;
    else {
      TRY(emit(s, row) && emit(s, 1));
      runs++;
    }
    next_row = row + 1;
  }
  s->tree[runs_at] = (int64_t)runs;
  return true;
}
static bool emit_node(Scanner *s, Node *node, int depth) {
  if (node->kind == STACK) return emit(s, T_STACK) && emit(s, (int64_t)node->code);
  if (node->kind == EVENT || depth > DEEPEST_TREE) return emit(s, T_OPAQUE);
  if (node->kind == FRAME) { /* outside a stack: give its parts back */
    struct Frame f = s->frames[node->code];
    return emit(s, T_DICT) && emit(s, 3) && emit(s, T_TEXT) && emit(s, s->k_filename) && emit(s, T_TEXT) && emit(s, f.filename) &&
           emit(s, T_TEXT) && emit(s, s->k_line) && emit(s, T_INT) && emit(s, f.line) && emit(s, T_TEXT) && emit(s, s->k_name) &&
           emit(s, T_TEXT) && emit(s, f.name);
  }
  /* A container reached twice is written twice; a genuine file shares frames and texts only. */
  s->visited += node->length;
  if (s->visited > FREE_ITEMS + s->fed) FAIL(s, "its shared references unfold beyond its own size");
  if (node->kind == LIST)
    for (uint32_t i = 0; i < node->length; i++) {
      const Node *item = node_of(s, node->items[i]);
      if (item && item->kind == EVENT) return emit_events(s, node);
    }
  uint32_t length = node->length, kind = node->kind;
  TRY(emit(s, kind == DICT ? T_DICT : kind == LIST ? T_LIST : T_TUPLE));
  TRY(emit(s, kind == DICT ? length / 2 : length));
  bool is_frames = false;
  for (uint32_t i = 0; i < length; i++) {
    int32_t code;
    if (is_frames && TAG(node->items[i]) == NODE) {
      TRY(stack_code(s, node->items[i], &code));
      TRY(emit(s, T_STACK) && emit(s, code));
    } else TRY(emit_value(s, node->items[i], depth + 1));
    if (node->kind != kind) FAIL(s, "a list of frames contains itself");
    is_frames = kind == DICT && i % 2 == 0 && node->items[i] == MAKE(TEXT, s->k_frames);
  }
  return true;
}
static bool emit_value(Scanner *s, Value value, int depth) {
  switch (TAG(value)) {
    case NONE: return emit(s, T_NONE);
    case BOOL: return emit(s, PAYLOAD(value) ? T_TRUE : T_FALSE);
    case INT: return emit(s, T_INT) && emit(s, PAYLOAD(value));
    case WIDE: return PAYLOAD(value) < 0 ? emit(s, T_BIG) : emit(s, T_INT) && emit(s, s->wide[PAYLOAD(value)]);
    case REAL: {
      int64_t bits;
      memcpy(&bits, &s->reals[PAYLOAD(value)], 8);
      return emit(s, T_REAL) && emit(s, bits);
    }
    case TEXT: return emit(s, T_TEXT) && emit(s, PAYLOAD(value));
    case PAIR:
      return emit(s, T_TUPLE) && emit(s, 2) && emit(s, T_INT) && emit(s, PAYLOAD(value) >> 30) && emit(s, T_INT) &&
             emit(s, PAYLOAD(value) & ((1 << 30) - 1));
    case NODE: return emit_node(s, node_of(s, value), depth);
    default: return emit(s, T_OPAQUE);
  }
}

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

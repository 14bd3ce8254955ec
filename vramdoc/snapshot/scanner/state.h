/* Values, the state of a scanner, and how it fails, grows and hashes. It knows no opcode. */
#pragma once
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

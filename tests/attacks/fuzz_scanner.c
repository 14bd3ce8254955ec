/* Feed mutated snapshots to the scanner, in pieces of any size, and look at everything it hands out. Built with the address and
 * undefined-behaviour sanitizers, which end the program at the first wrong access; leaks are reported at its end.
 *
 *     fuzz_scanner SEED RUNS FILE...
 */
#include SCANNER /* the source itself, so that the sanitizers see inside */

static uint64_t state;
static uint64_t below(uint64_t limit) { /* xorshift64 */
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return limit ? state % limit : 0;
}

static const uint8_t OPCODES[] = "().012NKMJGhjqrUTCBX]}aeldstucibRoQ\x80\x81\x82\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f"
                                 "\x90\x91\x92\x93\x94\x95\x96\x97\x98";
enum { ROOM = 4096, MOST_CHANGES = 6 };

typedef struct {
  uint8_t *bytes;
  size_t length;
} Seed;

static Seed read_seed(const char *path) {
  FILE *file = fopen(path, "rb");
  Seed seed = {malloc(1 << 20), 0};
  if (!file || !seed.bytes) exit(2);
  seed.length = fread(seed.bytes, 1, 1 << 20, file);
  fclose(file);
  return seed;
}

/* Change `bytes` (with ROOM spare behind `length`) once; returns the new length. */
static size_t change(uint8_t *bytes, size_t length, size_t most) {
  size_t at = below(length), count = 1 + below(32), from = below(length);
  switch (below(7)) {
    case 0: bytes[at] = (uint8_t)below(256); return length;
    case 1: bytes[at] = OPCODES[below(sizeof OPCODES - 1)]; return length;
    case 2: /* cut out */
      if (at + count >= length) return length;
      memmove(bytes + at, bytes + at + count, length - at - count);
      return length - count;
    case 3: /* copy from elsewhere */
      if (at + count < length && from + count < length) memmove(bytes + at, bytes + from, count);
      return length;
    case 4: /* put opcodes in */
      if (length + count > most) return length;
      memmove(bytes + at + count, bytes + at, length - at);
      for (size_t i = 0; i < count; i++) bytes[at + i] = OPCODES[below(sizeof OPCODES - 1)];
      return length + count;
    case 5: return at + 1; /* cut off */
    default: /* an index or a length, small or absurd */
      if (at + 4 < length) {
        uint32_t number = (uint32_t)(below(3) ? below(300) : 0xFFFFFFFFu - below(3));
        memcpy(bytes + at, &number, 4);
      }
      return length;
  }
}

static void check(bool holds) {
  if (!holds) abort();
}

/* Every code that Python will follow must lead somewhere. */
static uint64_t look(const Results *r) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < r->rows; i++) {
    check(r->action[i] < r->actions);
    check(r->pool[i] >= -1 && (r->pool[i] < 0 || (uint64_t)r->pool[i] < r->pool_count));
    check(r->trace_stack[i] >= -1 && (r->trace_stack[i] < 0 || (uint64_t)r->trace_stack[i] + 1 < r->stack_ends_count));
    sum += (uint64_t)(r->address[i] ^ r->size[i] ^ r->stream[i] ^ r->time_us[i]);
  }
  for (uint64_t i = 0; i + 1 < r->stack_ends_count; i++) check(r->stack_ends[i] < r->stack_ends[i + 1]);
  check((uint64_t)r->stack_ends[r->stack_ends_count - 1] == r->frame_indices_count);
  for (uint64_t i = 0; i < r->frame_indices_count; i++) check((uint64_t)r->frame_indices[i] < r->frames_count);
  for (uint64_t i = 0; i < r->frames_count; i++) check(r->frames[i].filename < r->texts_count && r->frames[i].name < r->texts_count);
  for (uint64_t i = 0; i < r->actions; i++) check(r->action_texts[i] < r->texts_count);
  for (uint64_t i = 0; i < r->texts_count; i++) check(r->texts[i].start + r->texts[i].length <= r->characters_count);
  for (uint64_t i = 0; i < r->tree_count; i++) sum += (uint64_t)r->tree[i];
  return sum;
}

static uint64_t scan_once(const uint8_t *bytes, size_t length) {
  Scanner *scanner = scanner_new();
  size_t step = below(2) ? length : 1 + below(64), at = 0;
  uint64_t sum = 0;
  int answer = 0;
  while (!answer && at < length) {
    size_t count = length - at < step ? length - at : step;
    uint8_t *piece = malloc(count); /* of its exact size, so that reading beyond it is seen */
    memcpy(piece, bytes + at, count);
    answer = scanner_feed(scanner, piece, count);
    free(piece);
    at += count;
  }
  if (answer == 1 && scanner_finish(scanner) == 0) {
    Results results;
    scanner_results(scanner, &results);
    sum = look(&results) | 1;
  }
  scanner_free(scanner);
  return sum;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  state = strtoull(argv[1], NULL, 10) * 0x9E3779B97F4A7C15u + 1;
  uint64_t runs = strtoull(argv[2], NULL, 10), read = 0;
  Seed *seeds = calloc((size_t)argc - 3, sizeof *seeds);
  for (int i = 3; i < argc; i++) seeds[i - 3] = read_seed(argv[i]);
  for (uint64_t run = 0; run < runs; run++) {
    Seed seed = seeds[below((uint64_t)argc - 3)];
    uint8_t *bytes = malloc(seed.length + ROOM);
    size_t length = seed.length;
    memcpy(bytes, seed.bytes, length);
    for (uint64_t changes = 1 + below(MOST_CHANGES); changes--;) length = change(bytes, length, seed.length + ROOM);
    read += scan_once(bytes, length) != 0;
    free(bytes);
  }
  for (int i = 3; i < argc; i++) free(seeds[i - 3].bytes);
  free(seeds);
  printf("%llu of %llu read\n", (unsigned long long)read, (unsigned long long)runs);
  return 0;
}

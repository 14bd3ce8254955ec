/* Stream capture and graphs. A capture is a state machine: streams join it by beginning it or by waiting for an event that
 * was recorded in it, calls that would have to wait for captured work spoil it, and it ends in a graph: nodes and what each
 * depends on, which is all that the allocator ever asks. Launching a graph does nothing. */
#define _GNU_SOURCE
#include "capture.h"

#include <stdlib.h>
#include <string.h>

/* ---- sets of nodes ------------------------------------------------------------------------------------------------------- */
static void append_node(Nodes *nodes, Node *node) {
    if (nodes->count == nodes->room) {
        nodes->room = nodes->room ? 2 * nodes->room : 4;
        nodes->items = realloc(nodes->items, nodes->room * sizeof(Node *));
        if (!nodes->items) abort();
    }
    nodes->items[nodes->count++] = node;
}
void add_node(Nodes *nodes, Node *node) {
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->items[i] == node) return;
    append_node(nodes, node);
}
void add_nodes(Nodes *nodes, const Nodes *more) {
    for (size_t i = 0; i < more->count; i++) add_node(nodes, more->items[i]);
}
void clear_nodes(Nodes *nodes) {
    free(nodes->items);
    *nodes = (Nodes){0};
}
/* ---- captures ------------------------------------------------------------------------------------------------------------ */
enum { GLOBAL_MODE = 0, THREAD_LOCAL_MODE = 1, RELAXED_MODE = 2 }; /* cudaStreamCaptureMode */
Capture *captures;
static _Thread_local int thread_mode = GLOBAL_MODE;

Capture *capture_with(unsigned long long id) {
    for (Capture *capture = captures; id && capture; capture = capture->next)
        if (capture->id == id) return capture;
    return NULL;
}
static Capture *capture_of(Stream *handle) {
    Stream *stream = captures ? stream_of(handle) : NULL;
    return stream ? capture_with(stream->capture) : NULL;
}
bool is_capturing(Stream *handle) { return capture_of(handle) != NULL; }

static Node *new_node(Graph *graph, int kind) {
    Node *node = calloc(1, sizeof *node);
    if (!node) abort();
    node->kind = kind;
    append_node(&graph->nodes, node);
    return node;
}
void note_work(Stream *handle, int kind) {
    Capture *capture = capture_of(handle);
    if (!capture) return;
    Stream *stream = stream_of(handle);
    Node *node = new_node(capture->graph, kind);
    node->dependencies = stream->frontier; /* moved, not copied */
    stream->frontier = (Nodes){0};
    add_node(&stream->frontier, node);
}

/* The rules of cudaThreadExchangeStreamCaptureMode. */
int capture_forbids(void) {
    int result = SUCCESS;
    for (Capture *capture = captures; capture; capture = capture->next) {
        bool own = capture->thread == &thread_mode;
        if (thread_mode != RELAXED_MODE && ((own && capture->mode != RELAXED_MODE) ||
                                            (!own && thread_mode == GLOBAL_MODE && capture->mode == GLOBAL_MODE))) {
            capture->status = INVALIDATED;
            result = CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}
EXPORT int cudaThreadExchangeStreamCaptureMode(int *mode) {
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return SUCCESS;
}

static int begin_capture(Stream *handle, Graph *graph, Node *const *dependencies, size_t count, int mode) {
    static unsigned long long last_id;
    Stream *stream = stream_of(handle);
    if (!stream) return fail(INVALID_HANDLE);
    if ((uintptr_t)handle <= 1) return fail(CAPTURE_UNSUPPORTED); /* the legacy stream cannot be captured */
    if (stream->capture) return fail(ILLEGAL_STATE);
    Capture *capture = calloc(1, sizeof *capture);
    if (!graph) graph = calloc(1, sizeof *graph);
    if (!capture || !graph) abort();
    *capture = (Capture){++last_id, mode, ACTIVE, &thread_mode, stream, graph, captures};
    captures = capture;
    stream->capture = capture->id;
    for (size_t i = 0; i < count; i++) add_node(&stream->frontier, dependencies[i]);
    return SUCCESS;
}
EXPORT int cudaStreamBeginCapture(Stream *handle, int mode) {
    LOCKED;
    return begin_capture(handle, NULL, NULL, 0, mode);
}
EXPORT int cudaStreamBeginCaptureToGraph(Stream *handle, Graph *graph, Node *const *dependencies, const void *edges,
                                         size_t count, int mode) {
    LOCKED;
    (void)edges;
    return graph ? begin_capture(handle, graph, dependencies, count, mode) : fail(INVALID_VALUE);
}

/* Marks the node and all that it depends on. Iterative: a captured step of training has thousands of nodes in a chain. */
static void mark_reached(Node *node) {
    Nodes open = {0};
    append_node(&open, node);
    while (open.count) {
        Node *next = open.items[--open.count];
        if (next->reached) continue;
        next->reached = true;
        for (size_t i = 0; i < next->dependencies.count; i++) append_node(&open, next->dependencies.items[i]);
    }
    clear_nodes(&open);
}
/* An empty node is no work (torch 2.9's allocator leaves some behind to mark its frees): what it waits for counts. */
static bool is_joined(const Node *node) {
    if (node->reached) return true;
    if (node->kind != EMPTY_NODE) return false;
    for (size_t i = 0; i < node->dependencies.count; i++)
        if (!is_joined(node->dependencies.items[i])) return false;
    return true;
}
static bool has_unjoined_work(const Capture *capture) {
    for (size_t i = 0; i < capture->graph->nodes.count; i++) capture->graph->nodes.items[i]->reached = false;
    for (size_t i = 0; i < capture->origin->frontier.count; i++) mark_reached(capture->origin->frontier.items[i]);
    for (size_t i = 0; i < streams_created(); i++) {
        const Stream *stream = stream_at(i);
        if (!stream || stream->capture != capture->id) continue;
        for (size_t n = 0; n < stream->frontier.count; n++)
            if (!is_joined(stream->frontier.items[n])) return true;
    }
    return false;
}
static void free_graph(Graph *graph) {
    for (size_t i = 0; graph && i < graph->nodes.count; i++) {
        clear_nodes(&graph->nodes.items[i]->dependencies);
        free(graph->nodes.items[i]);
    }
    if (graph) clear_nodes(&graph->nodes);
    free(graph);
}
EXPORT int cudaStreamEndCapture(Stream *handle, Graph **graph) {
    LOCKED;
    Capture *capture = capture_of(handle);
    *graph = NULL;
    if (!capture) return fail(ILLEGAL_STATE);
    if (capture->origin != stream_of(handle)) return fail(CAPTURE_UNMATCHED);
    int result = capture->status != ACTIVE       ? CAPTURE_INVALIDATED
                 : has_unjoined_work(capture)    ? CAPTURE_UNJOINED
                                                 : SUCCESS;
    for (Capture **link = &captures; *link; link = &(*link)->next)
        if (*link == capture) {
            *link = capture->next;
            break;
        }
    for (size_t i = 0; i < streams_created(); i++) {
        Stream *stream = stream_at(i);
        if (!stream || stream->capture != capture->id) continue;
        stream->capture = 0;
        clear_nodes(&stream->frontier);
    }
    capture->origin->capture = 0; /* cudaStreamPerThread is in no list */
    clear_nodes(&capture->origin->frontier);
    if (result == SUCCESS)
        *graph = capture->graph;
    else
        free_graph(capture->graph);
    free(capture);
    return fail(result);
}

EXPORT int cudaStreamIsCapturing(Stream *handle, int *status) {
    LOCKED;
    if (!stream_of(handle)) return fail(INVALID_HANDLE);
    Capture *capture = capture_of(handle);
    *status = capture ? capture->status : NONE;
    return SUCCESS;
}
/* CUDA 12 has three signatures, each a longer one; CUDA 13 gives the plain name to the longest. */
static int capture_info(Stream *handle, int *status, unsigned long long *id, Graph **graph, Node ***dependencies,
                        const void **edges, size_t *count) {
    LOCKED;
    if (!stream_of(handle)) return fail(INVALID_HANDLE);
    Capture *capture = capture_of(handle);
    *status = capture ? capture->status : NONE;
    if (!capture || capture->status != ACTIVE) return SUCCESS;
    if (id) *id = capture->id;
    if (graph) *graph = capture->graph;
    if (dependencies) *dependencies = stream_of(handle)->frontier.items;
    if (edges) *edges = NULL;
    if (count) *count = stream_of(handle)->frontier.count;
    return SUCCESS;
}
EXPORT int cudaStreamGetCaptureInfo_v3(Stream *handle, int *status, unsigned long long *id, Graph **graph,
                                       Node ***dependencies, const void **edges, size_t *count) {
    return capture_info(handle, status, id, graph, dependencies, edges, count);
}
EXPORT int cudaStreamGetCaptureInfo_v2(Stream *handle, int *status, unsigned long long *id, Graph **graph,
                                       Node ***dependencies, size_t *count) {
    return capture_info(handle, status, id, graph, dependencies, NULL, count);
}
#if CUDART_VERSION >= 13000
EXPORT int cudaStreamGetCaptureInfo(Stream *handle, int *status, unsigned long long *id, Graph **graph,
                                    Node ***dependencies, const void **edges, size_t *count) {
    return capture_info(handle, status, id, graph, dependencies, edges, count);
}
#else
EXPORT int cudaStreamGetCaptureInfo(Stream *handle, int *status, unsigned long long *id) {
    return capture_info(handle, status, id, NULL, NULL, NULL, NULL);
}
#endif

#define SET_DEPENDENCIES 1u /* cudaStreamSetCaptureDependencies; 0 adds */
static int update_dependencies(Stream *handle, Node *const *dependencies, size_t count, unsigned flags) {
    LOCKED;
    Capture *capture = capture_of(handle);
    if (!capture) return fail(ILLEGAL_STATE);
    Stream *stream = stream_of(handle);
    Nodes wanted = {0}; /* the caller may pass the very array that is replaced */
    if (!(flags & SET_DEPENDENCIES)) add_nodes(&wanted, &stream->frontier);
    for (size_t i = 0; i < count; i++) add_node(&wanted, dependencies[i]);
    clear_nodes(&stream->frontier);
    stream->frontier = wanted;
    return SUCCESS;
}
EXPORT int cudaStreamUpdateCaptureDependencies_v2(Stream *handle, Node *const *dependencies, const void *edges, size_t count,
                                                  unsigned flags) {
    (void)edges;
    return update_dependencies(handle, dependencies, count, flags);
}
#if CUDART_VERSION >= 13000
EXPORT int cudaStreamUpdateCaptureDependencies(Stream *handle, Node *const *dependencies, const void *edges, size_t count,
                                               unsigned flags) {
    (void)edges;
    return update_dependencies(handle, dependencies, count, flags);
}
#else
EXPORT int cudaStreamUpdateCaptureDependencies(Stream *handle, Node *const *dependencies, size_t count, unsigned flags) {
    return update_dependencies(handle, dependencies, count, flags);
}
#endif

/* ---- graphs -------------------------------------------------------------------------------------------------------------- */
EXPORT int cudaGraphCreate(Graph **graph, unsigned flags) {
    (void)flags;
    *graph = calloc(1, sizeof **graph);
    return *graph ? SUCCESS : fail(OUT_OF_MEMORY);
}
EXPORT int cudaGraphDestroy(Graph *graph) {
    LOCKED;
    free_graph(graph);
    return SUCCESS;
}
static int copy_out(const Nodes *nodes, Node **out, size_t *count) {
    for (size_t i = 0; out && i < *count; i++) out[i] = i < nodes->count ? nodes->items[i] : NULL;
    *count = out && nodes->count > *count ? *count : nodes->count;
    return SUCCESS;
}
EXPORT int cudaGraphGetNodes(const Graph *graph, Node **nodes, size_t *count) {
    LOCKED;
    return copy_out(&graph->nodes, nodes, count);
}
#define EDGE_BYTES 8 /* cudaGraphEdgeData; all zeros is a plain dependency */
static int node_dependencies(const Node *node, Node **dependencies, void *edges, size_t *count) {
    LOCKED;
    if (edges) memset(edges, 0, *count * EDGE_BYTES);
    return copy_out(&node->dependencies, dependencies, count);
}
EXPORT int cudaGraphNodeGetDependencies_v2(const Node *node, Node **dependencies, void *edges, size_t *count) {
    return node_dependencies(node, dependencies, edges, count);
}
#if CUDART_VERSION >= 13000
EXPORT int cudaGraphNodeGetDependencies(const Node *node, Node **dependencies, void *edges, size_t *count) {
    return node_dependencies(node, dependencies, edges, count);
}
#else
EXPORT int cudaGraphNodeGetDependencies(const Node *node, Node **dependencies, size_t *count) {
    return node_dependencies(node, dependencies, NULL, count);
}
#endif
EXPORT int cudaGraphNodeGetType(const Node *node, int *kind) {
    *kind = node->kind;
    return SUCCESS;
}
EXPORT int cudaGraphAddEmptyNode(Node **node, Graph *graph, Node *const *dependencies, size_t count) {
    LOCKED;
    *node = new_node(graph, EMPTY_NODE);
    for (size_t i = 0; i < count; i++) add_node(&(*node)->dependencies, dependencies[i]);
    return SUCCESS;
}

typedef struct {
    size_t nodes;
} Executable;
EXPORT int cudaGraphInstantiateWithFlags(Executable **executable, const Graph *graph, unsigned long long flags) {
    (void)flags;
    *executable = calloc(1, sizeof **executable);
    if (!*executable) return fail(OUT_OF_MEMORY);
    (*executable)->nodes = graph->nodes.count;
    return SUCCESS;
}
EXPORT int cudaGraphInstantiate(Executable **executable, const Graph *graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(executable, graph, flags);
}
EXPORT int cudaGraphExecDestroy(Executable *executable) {
    free(executable);
    return SUCCESS;
}
EXPORT int cudaGraphLaunch(const Executable *executable, Stream *handle) {
    LOCKED;
    (void)executable;
    note_work(handle, CHILD_GRAPH_NODE);
    return SUCCESS;
}
NOTHING_TO_DO(cudaGraphUpload)

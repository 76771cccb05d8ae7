// The pool of systems without threads (WebAssembly): the caller does all tasks.
#include "run/pool.hpp"

namespace hoyer {

std::size_t thread_count() { return 1; }
void set_thread_count(std::size_t) {}
std::size_t set_count() { return 0; }

Lent::Lent(std::size_t threads) : before_(threads) {}
Lent::~Lent() = default;

void use_openmp(const OpenMP&) {}

void run_tasks(std::size_t tasks, TaskFunction run, void* context) {
    for (std::size_t task = 0; task < tasks; ++task) run(context, task, true);
}

}  // namespace hoyer

#if defined(__wasi__)
// What a thread keeps would be freed when it ends, which the only one never does. Weak: systems may bring their own.
extern "C" __attribute__((weak)) int __cxa_thread_atexit(void (*)(void*), void*, void*) { return 0; }
#endif

// What the machine offers: a few threads that share the tasks of one call, and the size of its caches. Shared by all
// instruction sets: declarations only; see pool.cpp.
#pragma once

#include <cstddef>

namespace hoyer {

// How many threads a call may use. The default: HOYER_NUM_THREADS, or the processors this process may run on.
std::size_t thread_count();
void set_thread_count(std::size_t count);

// Calls run(context, task, on_caller) for every task number below `tasks`, on the caller and on the pool's threads, and
// returns when all are done. While the pool works for another caller everything runs on this one: calls never wait for
// each other. `run` must not throw.
using TaskFunction = void (*)(void* context, std::size_t task, bool on_caller);
void run_tasks(std::size_t tasks, TaskFunction run, void* context);

// The same for anything that can be called as work(task, on_caller).
template <class Work> void for_each_task(std::size_t tasks, Work& work) {
    run_tasks(
        tasks, [](void* context, std::size_t task, bool on_caller) { (*static_cast<Work*>(context))(task, on_caller); },
        &work);
}

// Bytes of the last-level cache.
std::size_t last_level_cache();

}  // namespace hoyer

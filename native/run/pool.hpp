// The threads that share the tasks of one call, and how many they are. Shared by all instruction sets: declarations
// only; see pool.cpp.
#pragma once

#include <cstddef>

#include "run/openmp.hpp"

namespace hoyer {

// How many threads the calls of this thread may use. What comes first counts: set_thread_count, HOYER_NUM_THREADS,
// OMP_NUM_THREADS, the processors (machine.hpp). Of threads that are lent, all but for the first two, which are limits.
std::size_t thread_count();
// The number holds until another is set, even where it is the one that would hold anyway: threads that are lent may be
// more. 0 takes it back.
void set_thread_count(std::size_t count);
// What was set; 0 if nothing.
std::size_t set_count();

// The runtime whose threads work from now on where they are lent; not in a forked child.
void use_openmp(const OpenMP& runtime);

// While it lives, the calls of this thread use so many threads of somebody who has them already, those of the OpenMP
// runtime, rather than the pool's own; without a runtime as many of the pool's own. 0: nothing is lent.
class Lent {
public:
    explicit Lent(std::size_t threads);
    Lent(const Lent&) = delete;
    ~Lent();

private:
    [[maybe_unused]] std::size_t before_;
};

// Calls run(context, task, on_caller) for every task number below `tasks`, on the caller and on other threads, and
// returns when all are done. While another call has the threads everything runs on this one, and so do tasks within
// tasks: calls never wait for each other. `run` must not throw.
using TaskFunction = void (*)(void* context, std::size_t task, bool on_caller);
void run_tasks(std::size_t tasks, TaskFunction run, void* context);

// The same for anything that can be called as work(task, on_caller).
template <class Work> void for_each_task(std::size_t tasks, Work& work) {
    run_tasks(
        tasks, [](void* context, std::size_t task, bool on_caller) { (*static_cast<Work*>(context))(task, on_caller); },
        &work);
}

}  // namespace hoyer

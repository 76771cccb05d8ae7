// The thread pool: started on first use, never joined, made anew after fork.
#include "run/pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

namespace hoyer {
namespace {

std::size_t default_count() {
    if (const char* text = std::getenv("HOYER_NUM_THREADS")) {
        char* end = nullptr;
        const long wanted = std::strtol(text, &end, 10);
        if (end != text && *end == '\0' && wanted > 0) return static_cast<std::size_t>(wanted);
    }
#if defined(__linux__)
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0) return static_cast<std::size_t>(CPU_COUNT(&mine));
#endif
    return std::max(1u, std::thread::hardware_concurrency());
}

std::atomic<std::size_t>& wanted_count() {
    static std::atomic<std::size_t> count{default_count()};
    return count;
}

class Pool {
public:
    // One caller at a time; others, and tasks within tasks, do without.
    bool try_acquire() { return !owned_.test_and_set(std::memory_order_acquire); }
    void release() { owned_.clear(std::memory_order_release); }

    // Invariant: every task number below `tasks` is taken exactly once, from next_.
    void run(std::size_t tasks, std::size_t helpers, TaskFunction run, void* context) {
        helpers = start(helpers);
        {
            std::lock_guard lock(mutex_);
            run_ = run;
            context_ = context;
            tasks_ = tasks;
            next_.store(0, std::memory_order_relaxed);
            open_ = helpers;
        }
        wake_.notify_all();
        work(true);
        std::unique_lock lock(mutex_);
        // No task is left: nobody else need come in, and those inside finish what they have.
        open_ = 0;
        idle_.wait(lock, [this] { return inside_ == 0; });
    }

private:
    // As many as wanted, or as the system gives.
    std::size_t start(std::size_t helpers) {
        try {
            for (; started_ < helpers; ++started_) std::thread([this] { serve(); }).detach();
        } catch (const std::system_error&) {
        }
        return std::min(helpers, started_);
    }

    void serve() {
        std::unique_lock lock(mutex_);
        while (true) {
            wake_.wait(lock, [this] { return open_ > 0; });
            --open_;
            ++inside_;
            lock.unlock();
            work(false);
            lock.lock();
            if (--inside_ == 0) idle_.notify_one();
        }
    }

    void work(bool on_caller) {
        while (true) {
            const std::size_t task = next_.fetch_add(1, std::memory_order_relaxed);
            if (task >= tasks_) return;
            run_(context_, task, on_caller);
        }
    }

    std::atomic_flag owned_;
    std::mutex mutex_;
    std::condition_variable wake_, idle_;
    std::size_t started_ = 0;
    std::size_t open_ = 0;    // how many threads may still join the current call
    std::size_t inside_ = 0;  // how many work on it
    std::atomic<std::size_t> next_{0};
    std::size_t tasks_ = 0;
    TaskFunction run_ = nullptr;
    void* context_ = nullptr;
};

// Never destroyed: its threads sleep until the process ends. A forked child has none of them and starts its own.
Pool* pool = nullptr;

Pool& the_pool() {
    static std::once_flag once;
    std::call_once(once, [] {
        pool = new Pool;
        pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
    });
    return *pool;
}

}  // namespace

std::size_t thread_count() { return wanted_count().load(); }
void set_thread_count(std::size_t count) { wanted_count().store(std::max<std::size_t>(1, count)); }

void run_tasks(std::size_t tasks, TaskFunction run, void* context) {
    const std::size_t threads = std::min(thread_count(), tasks);
    if (threads > 1) {
        Pool& shared = the_pool();
        if (shared.try_acquire()) {
            shared.run(tasks, threads - 1, run, context);
            shared.release();
            return;
        }
    }
    for (std::size_t task = 0; task < tasks; ++task) run(context, task, true);
}

std::size_t last_level_cache() {
    static const std::size_t bytes = [] {
        // What the kernel says; the C library adds up caches that one core does not reach.
        std::size_t largest = 0;
        for (int level = 2; level < 5; ++level) {
            std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(level) + "/size");
            std::size_t size = 0;
            char unit = 'K';
            if (file >> size >> unit) largest = std::max(largest, size << (unit == 'M' ? 20 : 10));
        }
        return largest ? largest : std::size_t{32} << 20;
    }();
    return bytes;
}

}  // namespace hoyer

// Who works on the tasks of a call: our own threads (started on first use, never joined, made anew after fork), or
// those of an OpenMP runtime.
#include "run/pool.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>

#include "run/machine.hpp"

namespace hoyer {
namespace {

// The number that a variable of the environment starts with (OMP_NUM_THREADS may list one for each level of nesting),
// 0 if that is none, or makes no sense.
std::size_t number_in(const char* variable) {
    const char* text = std::getenv(variable);
    if (!text) return 0;
    char* end = nullptr;
    const long number = std::strtol(text, &end, 10);
    return end != text && (*end == '\0' || *end == ',') && number > 0 ? static_cast<std::size_t>(number) : 0;
}

std::size_t asked_by_environment() {
    static const std::size_t count = number_in("HOYER_NUM_THREADS");
    return count;
}

// Without set_thread_count. OMP_NUM_THREADS says how many threads any library should have: loky and joblib set it for
// their workers.
std::size_t default_count() {
    static const std::size_t common = number_in("OMP_NUM_THREADS");
    const std::size_t asked = asked_by_environment();
    return asked ? asked : common ? common : processors();
}

// What set_thread_count was given; 0 if nothing.
std::atomic<std::size_t> chosen{0};

// See Lent.
thread_local std::size_t lent = 0;

// The runtime that lends its threads; none without it, and in a forked child.
OpenMP openmp;

// The tasks of one call, for the caller and whoever helps. Each of them begins with a share of its own, the caller
// always with the first: its caches may still have some of it. Whoever is done with that helps the others.
class Work {
public:
    Work(std::size_t tasks, std::size_t helpers, TaskFunction run, void* context)
        : tasks_(tasks), helpers_(helpers), shares_(std::min(helpers + 1, next_.size())), run_(run), context_(context) {
        for (std::size_t share = 0; share < shares_; ++share) next_[share] = first(share);
    }

    // Called by the caller and by helpers; helpers beyond the limit return at once.
    // Invariant: every task number of a share is taken exactly once, from its next_.
    void take_part() {
        const bool on_caller = std::this_thread::get_id() == caller_;
        const std::size_t own = on_caller ? 0 : 1 + helping_.fetch_add(1, std::memory_order_relaxed);
        if (own > helpers_) return;
        for (std::size_t i = 0; i < shares_; ++i) {
            const std::size_t share = (own + i) % shares_, end = first(share + 1);
            for (std::size_t task; (task = next_[share].fetch_add(1, std::memory_order_relaxed)) < end;)
                run_(context_, task, on_caller);
        }
    }

private:
    std::size_t first(std::size_t share) const { return tasks_ * share / shares_; }

    std::array<std::atomic<std::size_t>, 64> next_;
    std::size_t tasks_, helpers_, shares_;
    TaskFunction run_;
    void* context_;
    const std::thread::id caller_ = std::this_thread::get_id();
    std::atomic<std::size_t> helping_{0};
};

class Pool {
public:
    // One caller at a time; others, and tasks within tasks, do without.
    bool try_acquire() { return !owned_.test_and_set(std::memory_order_acquire); }
    void release() { owned_.clear(std::memory_order_release); }

    void run(std::size_t helpers, Work& work) {
        helpers = start(helpers);
        {
            std::lock_guard lock(mutex_);
            work_ = &work;
            open_ = helpers;
        }
        wake_.notify_all();
        work.take_part();
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
            Work& work = *work_;
            lock.unlock();
            work.take_part();
            lock.lock();
            if (--inside_ == 0) idle_.notify_one();
        }
    }

    std::atomic_flag owned_;
    std::mutex mutex_;
    std::condition_variable wake_, idle_;
    std::size_t started_ = 0;
    std::size_t open_ = 0;    // how many threads may still join the current call
    std::size_t inside_ = 0;  // how many work on it
    Work* work_ = nullptr;
};

// Made on first use, and never destroyed: its threads sleep until the process ends.
std::atomic<Pool*> pool{nullptr};

Pool& the_pool() {
    static std::once_flag once;
    std::call_once(once, [] { pool = new Pool; });
    return *pool;
}

// A forked child has none of these threads. It starts its own, and OpenMP's are left alone from then on: libgomp would
// wait for those of the parent.
bool forked = false;
[[maybe_unused]] const bool watched = [] {
    after_fork([] {
        if (pool) pool = new Pool;
        openmp = {};
        forked = true;
    });
    return true;
}();

// All threads that are lent are called, as PyTorch does: libgomp ends those that a smaller team leaves over, and has to
// start them again for the next one.
void run_on_openmp(Work& work) {
    const auto take_part = [](void* given) { static_cast<Work*>(given)->take_part(); };
    openmp.parallel(take_part, &work, static_cast<unsigned>(lent), 0);
}

}  // namespace

std::size_t thread_count() {
    const std::size_t set = chosen.load(), limit = set ? set : asked_by_environment();
    if (lent) return limit ? std::min(limit, lent) : lent;
    return limit ? limit : default_count();
}

void set_thread_count(std::size_t count) { chosen.store(count); }
std::size_t set_count() { return chosen.load(); }

Lent::Lent(std::size_t threads) : before_(lent) { lent = threads; }
Lent::~Lent() { lent = before_; }

void use_openmp(const OpenMP& runtime) {
    if (!forked) openmp = runtime;
}

void run_tasks(std::size_t tasks, TaskFunction run, void* context) {
    const std::size_t threads = tasks > 1 ? thread_count() : 1;
    if (threads > 1 && !(lent && openmp.parallel && openmp.in_parallel())) {
        Pool& shared = the_pool();
        if (shared.try_acquire()) {
            const std::size_t helpers = std::min(threads, tasks) - 1;
            Work work(tasks, helpers, run, context);
            if (lent && openmp.parallel)
                run_on_openmp(work);
            else
                shared.run(helpers, work);
            shared.release();
            return;
        }
    }
    for (std::size_t task = 0; task < tasks; ++task) run(context, task, true);
}

}  // namespace hoyer

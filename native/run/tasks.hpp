// Many vectors as tasks for the threads.
#pragma once

#include <atomic>
#include <exception>

#include "run/pool.hpp"
#include "simd/registers.hpp"

namespace hoyer::inline HOYER_ISA {

// The vectors of a batch in tasks of a few ten thousand entries.
struct RowTasks {
    std::size_t rows, length, per_task, count;
    std::size_t before = 0;  // how many vectors come before these, where several batches are counted through

    // `together`: so many vectors, from every multiple of that number on, belong to one task.
    RowTasks(std::size_t rows, std::size_t length, std::size_t together) : rows(rows), length(length) {
        constexpr std::size_t entries = std::size_t{1} << 15;
        const std::size_t wanted = entries / std::max<std::size_t>(1, length);
        per_task = std::max<std::size_t>(1, wanted / together) * together;
        count = (rows + per_task - 1) / per_task;
    }
};

// What work() throws, or null. Compiled without exceptions nothing is thrown: running out of memory ends the program.
template <class Work> HOYER_INLINE std::exception_ptr thrown_by(Work&& work) {
#if defined(__cpp_exceptions)
    try {
        work();
    } catch (...) {
        return std::current_exception();
    }
#else
    work();
#endif
    return nullptr;
}

// One run over the tasks of a batch, or of several; one thread does for little work.
//
// The caller is asked now and then whether to go on (Python's signals reach its thread alone). Which vector was the
// first to fail does not depend on the order of the tasks.
class TaskRun {
public:
    explicit TaskRun(bool (*go_on)()) : go_on_(go_on) {}

    // Calls make(), and what it returns for the vectors of a task: f(row, end) does some of them, from `row` on, and
    // returns how many; 0 if vector `row` is bad.
    template <class Make> void work(const RowTasks& tasks, std::size_t task, bool on_caller, Make&& make) {
        const std::size_t begin = task * tasks.per_task, end = std::min(tasks.rows, begin + tasks.per_task);
        // Tasks before a failure must still look for an earlier one.
        if (stopped_.load(std::memory_order_relaxed) ||
            tasks.before + begin > first_bad_.load(std::memory_order_relaxed))
            return;
        const std::exception_ptr error = thrown_by([&] {
            auto f = make();
            for (std::size_t row = begin; row < end;) {
                const std::size_t done = f(row, end);
                if (done == 0) return fail(tasks.before + row);
                row += done;
                if (on_caller && !spend(done * tasks.length)) return stopped_.store(true, std::memory_order_relaxed);
            }
        });
        if (!error) return;
        // Out of memory: the caller is told, not the thread it happened on.
        if (!failed_.exchange(true)) error_ = error;
        stopped_.store(true, std::memory_order_relaxed);
    }

    // What came of it, once all tasks are done.
    std::int64_t outcome() const {
        if (error_) std::rethrow_exception(error_);
        if (first_bad_.load() != none) return static_cast<std::int64_t>(first_bad_.load());
        return stopped_.load() ? interrupted : all_good;
    }

private:
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

    void fail(std::size_t row) {
        std::size_t known = first_bad_.load();
        while (row < known && !first_bad_.compare_exchange_weak(known, row)) {
        }
    }
    bool spend(std::size_t entries) {
        spent_ += entries;
        if (spent_ < (std::size_t{1} << 22)) return true;
        spent_ = 0;
        return go_on_();
    }

    bool (*go_on_)();
    std::size_t spent_ = 0;
    std::atomic<std::size_t> first_bad_{none};
    std::atomic<bool> stopped_{false}, failed_{false};
    std::exception_ptr error_;
};

// All tasks of one batch: see TaskRun::work.
template <class Make> std::int64_t run_rows(const RowTasks& tasks, bool (*go_on)(), Make make) {
    TaskRun run(go_on);
    auto work = [&](std::size_t task, bool on_caller) { run.work(tasks, task, on_caller, make); };
    for_each_task(tasks.count, work);
    return run.outcome();
}

}  // namespace hoyer::inline HOYER_ISA

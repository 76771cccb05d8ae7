// Many vectors as tasks for the threads.
#pragma once

#include <atomic>
#include <exception>

#include "run/pool.hpp"
#include "simd/registers.hpp"

namespace hoyer::inline HOYER_ISA {

// Vectors in tasks of a few ten thousand entries, shared by the threads; one thread does for little work.
//
// The caller is asked now and then whether to go on (Python's signals reach its thread alone). Which vector was the
// first to fail does not depend on the order of the tasks.
class RowTasks {
public:
    // `together`: so many vectors, from every multiple of that number on, belong to one task.
    RowTasks(std::size_t rows, std::size_t length, std::size_t together, bool (*go_on)())
        : rows_(rows), go_on_(go_on), length_(length) {
        constexpr std::size_t entries = std::size_t{1} << 15;
        const std::size_t wanted = entries / std::max<std::size_t>(1, length);
        per_task_ = std::max<std::size_t>(1, wanted / together) * together;
        tasks_ = (rows + per_task_ - 1) / per_task_;
    }

    // Calls make(), once per task, and what it returns for the vectors of the task: f(row, end) does some of them, from
    // `row` on, and returns how many; 0 if vector `row` is bad.
    template <class Make> std::int64_t run(Make make) {
        auto work = [&](std::size_t task, bool on_caller) {
            const std::size_t begin = task * per_task_, end = std::min(rows_, begin + per_task_);
            // Tasks before a failure must still look for an earlier one.
            if (stopped_.load(std::memory_order_relaxed) || begin > first_bad_.load(std::memory_order_relaxed)) return;
            try {
                auto f = make();
                for (std::size_t row = begin; row < end;) {
                    const std::size_t done = f(row, end);
                    if (done == 0) return fail(row);
                    row += done;
                    if (on_caller && !spend(done)) return stopped_.store(true, std::memory_order_relaxed);
                }
            } catch (...) {
                // Out of memory: the caller is told, not the thread it happened on.
                if (!failed_.exchange(true)) error_ = std::current_exception();
                stopped_.store(true, std::memory_order_relaxed);
            }
        };
        for_each_task(tasks_, work);
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
    bool spend(std::size_t vectors) {
        spent_ += vectors * length_;
        if (spent_ < (std::size_t{1} << 22)) return true;
        spent_ = 0;
        return go_on_();
    }

    std::size_t rows_, per_task_ = 1, tasks_ = 0;
    bool (*go_on_)();
    std::size_t length_, spent_ = 0;
    std::atomic<std::size_t> first_bad_{none};
    std::atomic<bool> stopped_{false}, failed_{false};
    std::exception_ptr error_;
};

}  // namespace hoyer::inline HOYER_ISA

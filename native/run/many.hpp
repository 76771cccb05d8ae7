// Several arrays in one call: their tasks are shared by the threads as those of one array are, with the same bits.
#pragma once

#include "run/rows.hpp"

namespace hoyer::inline HOYER_ISA {

// What is done with one of several arrays, and which of all tasks are its own.
struct ArrayTasks {
    const Job& job;
    RowTasks tasks;
    void (*work)(const ArrayTasks&, TaskRun&, std::size_t task, bool on_caller);
    std::size_t first_task = 0;
};

// Does the tasks of all arrays; returns the number of the first bad vector, counted through them, or as TaskRun does.
inline std::int64_t run_arrays(std::vector<ArrayTasks>& arrays, bool (*go_on)()) {
    std::size_t tasks = 0;
    for (ArrayTasks& array : arrays) {
        array.first_task = tasks;
        tasks += array.tasks.count;
    }
    TaskRun run(go_on);
    auto work = [&](std::size_t task, bool on_caller) {
        const auto later =
            std::upper_bound(arrays.begin(), arrays.end(), task,
                             [](std::size_t t, const ArrayTasks& array) { return t < array.first_task; });
        const ArrayTasks& array = *std::prev(later);
        array.work(array, run, task - array.first_task, on_caller);
    };
    for_each_task(tasks, work);
    return run.outcome();
}

template <class E> void check_task(const ArrayTasks& array, TaskRun& run, std::size_t task, bool on_caller) {
    const Batch& x = array.job.x;
    run.work(array.tasks, task, on_caller, [&] {
        return [&x, in_order = std::is_same_v<E, Compute<E>> && x.contiguous(sizeof(E)), reader = Reader<E>(x)](
                   std::size_t row, std::size_t end) mutable -> std::size_t {
            const std::size_t n = x.length();
            // Many short vectors are one long one.
            if (in_order && all_finite(reader.read(row), (end - row) * n)) return end - row;
            return all_finite(reader.read(row), n) ? 1 : 0;
        };
    });
}

template <class E, bool Signed>
void project_task(const ArrayTasks& array, TaskRun& run, std::size_t task, bool on_caller) {
    using Rows = DenseRows<E, Signed>;
    const Job& job = array.job;
    const Request request = request_for<E>(job);
    run.work(array.tasks, task, on_caller,
             [&] { return RowProjector<E, Signed, Rows>(job, request, [&](E* buffer) { return Rows(job, buffer); }); });
}

// Whether threads that share a single vector get further than those that share vectors.
inline bool shares_vectors(const Job& job) { return job.x.length() > part_size && job.x.rows() < thread_count(); }

// Projects arrays without masks in place. Where vectors are checked nothing is written if one is bad; the result is its
// number, counted through the arrays.
inline std::int64_t project_many(const std::vector<ArrayJob>& given, bool (*go_on)()) {
    std::vector<ArrayTasks> checks, projections;
    std::vector<const ArrayJob*> others;
    std::size_t rows = 0;
    for (const ArrayJob& array : given) {
        const Job& job = array.job;
        with_element(array.element, [&]<class E>() {
            RowTasks tasks = tasks_of<E>(job);
            tasks.before = rows;
            if (job.check != Check::none) checks.push_back({job, tasks, check_task<E>});
            if (array.alone || shares_vectors(job))
                others.push_back(&array);
            else
                projections.push_back({job, tasks, job.nonnegative ? project_task<E, false> : project_task<E, true>});
            return all_good;
        });
        rows += job.x.rows();
    }
    if (const std::int64_t bad = run_arrays(checks, go_on); bad != all_good) return bad;
    if (const std::int64_t bad = run_arrays(projections, go_on); bad != all_good) return bad;
    for (const ArrayJob* array : others) {
        const std::int64_t outcome = with_element(array->element, [&]<class E>() {
            return array->job.nonnegative ? project_rows<E, false>(array->job, go_on)
                                          : project_rows<E, true>(array->job, go_on);
        });
        if (outcome != all_good) return outcome;
    }
    return all_good;
}

}  // namespace hoyer::inline HOYER_ISA

// A stress test of the core without Python, to be run under the sanitizers (`make sanitize`).
//
// Random batches of every type, layout, target and path, from several threads at once; every result must have the norms
// that were asked for, and a forked child must be able to go on.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "../../native/dispatch.hpp"
#include "../../native/jobs.hpp"
#include "../../native/pool.hpp"

namespace {

using hoyer::Element;
using Random = std::mt19937_64;

template <class E> constexpr Element element_of();
template <> constexpr Element element_of<double>() { return Element::float64; }
template <> constexpr Element element_of<float>() { return Element::float32; }
template <> constexpr Element element_of<hoyer::Half>() { return Element::float16; }

bool go_on() { return true; }

double draw(Random& random, int kind) {
    std::normal_distribution<double> normal;
    const double z = normal(random);
    switch (kind) {
        case 0: return z;
        case 1: return std::fabs(z);
        case 2: return std::exp(2 * z);
        case 3: return std::round(3 * z);
        default: return kind == 4 ? 1 + 1e-6 * z : 0;
    }
}

void fail(const char* what, std::size_t n, double wanted, double found) {
    std::fprintf(stderr, "%s: n = %zu, wanted %g, found %g\n", what, n, wanted, found);
    std::abort();
}

template <class E> void one_batch(const hoyer::Core& core, Random& random) {
    const std::size_t lengths[] = {2, 3, 7, 16, 40, 100, 300, 1500, 20000, 70000};
    const std::size_t n = lengths[random() % 10], rows = n > 5000 ? 1 + random() % 3 : 1 + random() % 40;
    const std::size_t gap = random() % 2 ? 1 : 3;
    const int kind = static_cast<int>(random() % 6);
    std::vector<E> x(rows * n * gap), out(rows * n);
    for (E& value : x) value = static_cast<E>(draw(random, kind));

    hoyer::Job job;
    const std::int64_t shape[] = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(n)};
    const std::int64_t strides[] = {static_cast<std::int64_t>(n * gap), static_cast<std::int64_t>(gap)};
    const std::int64_t dense[] = {static_cast<std::int64_t>(n), 1};
    job.x = hoyer::Batch(x.data(), 2, 1, shape, strides, sizeof(E), false);
    job.out = hoyer::Batch(out.data(), 2, 1, shape, dense, sizeof(E), false);
    std::uniform_real_distribution<double> uniform;
    const double root = std::sqrt(static_cast<double>(n)), sparseness = uniform(random);
    const double ratio = 1 + (1 - sparseness) * (root - 1), l2 = 1;
    const double room = sparseness * (root - 1) * (root + ratio), zero = 0;
    job.ratio = {&ratio, 0};
    job.room = {&room, 0};
    job.room_low = {&zero, 0};
    job.l2 = {&l2, 0};
    job.request.solver = static_cast<hoyer::Solver>(random() % 8 < 4 ? 0 : random() % 5);
    job.nonnegative = random() % 2;
    job.check = hoyer::Check::all_first;
    if (random() % 2) job.request.sampling.shortest = 600;
    std::vector<hoyer::Record> records(rows);
    job.records = records.data();
    if (core.project(element_of<E>(), job, go_on) != hoyer::all_good) fail("not good", n, 0, 0);
    for (std::size_t row = 0; row < rows; ++row) {
        double sum = 0, squares = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const double value = std::fabs(static_cast<double>(out[row * n + i]));
            sum += value;
            squares += value * value;
        }
        const double slack = sizeof(E) == 2 ? 0.1 : 1e-4;
        if (!(std::fabs(std::sqrt(squares) - 1) < slack)) fail("l2", n, 1, std::sqrt(squares));
        if (!(std::fabs(sum - ratio) < slack * ratio)) fail("l1", n, ratio, sum);
    }

    hoyer::SparseResult sparse;
    if (core.project_sparse(element_of<E>(), job, sparse, go_on) != hoyer::all_good) fail("not good", n, 0, 0);
    if (sparse.indices.size() * sizeof(E) != sparse.values.size()) fail("sparse", n, 0, 0);

    std::vector<E> z(rows * n);
    hoyer::GradientJob gradient;
    gradient.value = gradient.y = job.out;
    gradient.out = hoyer::Batch(z.data(), 2, 1, shape, dense, sizeof(E), false);
    gradient.records = records.data();
    gradient.mode = static_cast<hoyer::Mode>(random() % 2);
    gradient.nonnegative = job.nonnegative;
    core.gradient(element_of<E>(), gradient, go_on);
    std::vector<double> sigma(rows);
    core.sparseness(element_of<E>(), job.x, sigma.data(), go_on);
}

void many_batches(const hoyer::Core& core, unsigned seed, int count) {
    Random random(seed);
    for (int i = 0; i < count; ++i) {
        one_batch<double>(core, random);
        one_batch<float>(core, random);
        one_batch<hoyer::Half>(core, random);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const int count = argc > 1 ? std::atoi(argv[1]) : 60;
    hoyer::set_thread_count(3);
    for (const hoyer::Core* core : hoyer::available_cores()) {
        std::vector<std::thread> callers;
        for (unsigned seed = 0; seed < 3; ++seed)
            callers.emplace_back([=] { many_batches(*core, seed, count); });
        for (std::thread& caller : callers) caller.join();
#ifndef __SANITIZE_THREAD__   // which does not support threads in a child of a process with threads
        const pid_t child = fork();
        if (child == 0) {
            many_batches(*core, 99, count / 4);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status != 0) fail("child", 0, 0, status);
#endif
        std::printf("%s: good\n", core->name);
    }
}

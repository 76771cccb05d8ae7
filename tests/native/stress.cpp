// A stress test of the core without Python, to be run under the sanitizers (`make sanitize`) and on other machines
// (`make cross`).
//
// Random batches of every type, layout, target and path, from several threads at once; every result must have the norms
// that were asked for, and a forked child must be able to go on. What a system lacks, threads or fork, is left out.
#if defined(__wasm__)
#define HAS_THREADS 0
#else
#define HAS_THREADS 1
#endif
// ThreadSanitizer does not support threads in a child of a process with threads.
#if defined(__wasm__) || defined(_WIN32) || defined(__SANITIZE_THREAD__)
#define HAS_FORK 0
#else
#define HAS_FORK 1
#endif

#if HAS_FORK
#include <sys/wait.h>
#include <unistd.h>
#endif
#if HAS_THREADS
#include <thread>
#endif

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "run/dispatch.hpp"
#include "run/pool.hpp"

namespace {

using hoyer::Element;
using Random = std::mt19937_64;

template <class E> constexpr Element element_of();
template <> constexpr Element element_of<double>() { return Element::float64; }
template <> constexpr Element element_of<float>() { return Element::float32; }
template <> constexpr Element element_of<hoyer::Half>() { return Element::float16; }
template <> constexpr Element element_of<hoyer::BFloat16>() { return Element::bfloat16; }

bool go_on() { return true; }

// Calls work(0), ..., work(count - 1) at once, each on a thread of its own.
template <class Work> void at_once(unsigned count, Work work) {
#if HAS_THREADS
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < count; ++i) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
#else
    for (unsigned i = 0; i < count; ++i) work(i);
#endif
}

// A stand-in for OpenMP's runtime, which sanitizers cannot look into. The caller must be one of the team.
void team(void (*run)(void*), void* data, unsigned threads, unsigned) {
#if HAS_THREADS
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(run, data);
    run(data);
    for (std::thread& other : others) other.join();
#else
    for (unsigned i = 0; i < threads; ++i) run(data);
#endif
}
int in_no_team() { return 0; }

double draw(Random& random, int kind) {
    std::normal_distribution<double> normal;
    const double z = normal(random);
    switch (kind) {
        case 0:
            return z;
        case 1:
            return std::fabs(z);
        case 2:
            return std::exp(2 * z);
        case 3:
            return std::round(3 * z);
        default:
            return kind == 4 ? 1 + 1e-6 * z : 0;
    }
}

void fail(const char* what, std::size_t n, double wanted, double found) {
    std::fprintf(stderr, "%s: n = %zu, wanted %g, found %g\n", what, n, wanted, found);
    std::abort();
}

// How the entries of a batch lie: vectors one after the other, with gaps, or side by side.
struct Layout {
    std::int64_t shape[2], strides[2];
    std::size_t size;
    Layout(std::size_t rows, std::size_t n, std::size_t gap, bool beside)
        : shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(n)}, size(rows * n * gap) {
        const auto step = static_cast<std::int64_t>(gap);
        strides[0] = beside ? step : shape[1] * step;
        strides[1] = beside ? shape[0] * step : step;
    }
    template <class E> hoyer::Batch batch(E* data) const { return {data, 2, 1, shape, strides, sizeof(E), false}; }
    std::size_t at(std::size_t row, std::size_t i) const {
        return static_cast<std::size_t>(static_cast<std::int64_t>(row) * strides[0] +
                                        static_cast<std::int64_t>(i) * strides[1]);
    }
};

// Which entries count: all, or those that masks leave. There may be runs that do, or hardly any.
struct Masks {
    std::vector<std::uint8_t> bytes;
    std::vector<std::int64_t> lengths;
    Layout layout;
    Masks(Random& random, std::size_t rows, std::size_t n)
        : bytes(rows * n), lengths(rows), layout(rows, n, 1, random() % 3 == 0) {
        std::uniform_real_distribution<double> uniform;
        for (std::size_t row = 0; row < rows; ++row) {
            const double share = random() % 8 ? uniform(random) : static_cast<double>(random() % 2);
            const std::size_t run = random() % 4 ? 1 : 1 + random() % n;
            bool counts = false;
            for (std::size_t i = 0; i < n; ++i) {
                if (i % run == 0) counts = uniform(random) < share;
                bytes[layout.at(row, i)] = counts;
                lengths[row] += counts;
            }
        }
    }
    bool counts(std::size_t row, std::size_t i) const { return bytes[layout.at(row, i)]; }
    void apply(hoyer::Job& job) {
        job.where = layout.batch(bytes.data());
        job.lengths = lengths.data();
    }
};

// What is asked of each vector: one target for all, or one each.
struct Targets {
    std::vector<double> ratio, slack, slack_low, l2;
    Targets(Random& random, std::size_t rows, std::size_t n, const std::int64_t* lengths) {
        std::uniform_real_distribution<double> uniform;
        const std::size_t count = random() % 2 && !lengths ? 1 : rows;
        for (std::size_t i = 0; i < count; ++i) {
            const double root = std::sqrt(lengths ? static_cast<double>(lengths[i]) : static_cast<double>(n));
            const double sparseness = uniform(random), one = 1 + (1 - sparseness) * (root - 1);
            ratio.push_back(one);
            slack.push_back(sparseness * (root - 1) * (root + one));
            slack_low.push_back(0);
            l2.push_back(1);
        }
    }
    void apply(hoyer::Job& job) const {
        const std::size_t step = ratio.size() > 1;
        job.ratio = {ratio.data(), step};
        job.slack = {slack.data(), step};
        job.slack_low = {slack_low.data(), step};
        job.l2 = {l2.data(), step};
    }
};

template <class E> void check_norms(const std::vector<E>& out, const Layout& layout, const hoyer::Record* records) {
    const double tolerance = sizeof(E) == 2 ? 0.1 : 1e-4;
    const auto rows = static_cast<std::size_t>(layout.shape[0]), n = static_cast<std::size_t>(layout.shape[1]);
    for (std::size_t row = 0; row < rows; ++row) {
        double sum = 0, squares = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const double value = std::fabs(static_cast<double>(out[layout.at(row, i)]));
            sum += value;
            squares += value * value;
        }
        const double l1 = records[row].l1, l2 = records[row].l2;
        if (sizeof(E) == 2 && !(l2 > 1e-2 && l2 < 1e4)) continue;  // what a half type cannot hold
        if (!(std::fabs(std::sqrt(squares) - l2) <= tolerance * l2)) fail("l2", n, l2, std::sqrt(squares));
        if (!(std::fabs(sum - l1) <= tolerance * l1)) fail("l1", n, l1, sum);
    }
}

template <class E>
void check_sparse(const hoyer::SparseResult& sparse, const std::vector<E>& out, const Layout& layout) {
    std::vector<E> dense(out.size(), E(0));
    for (std::size_t row = 0; row + 1 < sparse.starts.size(); ++row) {
        for (std::int64_t k = sparse.starts[row]; k < sparse.starts[row + 1]; ++k) {
            const auto entry = static_cast<std::size_t>(k);
            E& place = dense[layout.at(row, static_cast<std::size_t>(sparse.indices[entry]))];
            std::memcpy(&place, sparse.values.data() + entry * sizeof(E), sizeof(E));
        }
    }
    for (std::size_t i = 0; i < out.size(); ++i)
        if (!(static_cast<double>(dense[i]) == static_cast<double>(out[i])))
            fail("sparse", i, static_cast<double>(out[i]), static_cast<double>(dense[i]));
}

void set_rules(hoyer::Job& job, Random& random) {
    job.request.solver = static_cast<hoyer::Solver>(random() % 8 < 6 ? 0 : random() % 5);
    job.request.norm = static_cast<hoyer::NormRule>(random() % 2 ? 0 : random() % 4);
    job.request.only_increase = random() % 8 == 0;
    const bool free = job.request.norm == hoyer::NormRule::free;
    job.request.at_most = (free || job.request.norm == hoyer::NormRule::fixed) && random() % 3 == 0;
    if (free || job.request.at_most) {
        job.request.solver = hoyer::Solver::automatic;
        job.request.only_increase = false;
    }
    job.nonnegative = job.request.norm != hoyer::NormRule::nearest && random() % 2;
    job.check = hoyer::Check::all_first;
    hoyer::SamplingRules& rules = job.request.sampling;
    if (random() % 2) rules.shortest = 600;
    if (random() % 2) rules.rare = 1;
    if (random() % 4 == 0) rules.standard_errors = 0.05;
    if (random() % 2) rules.cache_bytes = 1;
    if (random() % 2) rules.shortest_sifted = 1;
    if (random() % 2) rules.sifted_share = 1;
}

template <class E>
void multiply(const hoyer::Core& core, Random& random, const hoyer::Job& job, const std::vector<E>& out,
              const Layout& layout) {
    const std::size_t rows = job.x.rows(), size = out.size();
    // Sums of such y may overflow or vanish.
    const int exponents[] = {0, 0, 12, -20, 120, -140, 1020, -1060};
    const int exponent = exponents[random() % 8];
    std::vector<E> y(size), z(size), second(size);
    for (std::size_t i = 0; i < size; ++i) y[i] = static_cast<E>(std::ldexp(static_cast<double>(out[i]), exponent));
    hoyer::GradientJob gradient;
    gradient.value = job.out;
    gradient.y = layout.batch(y.data());
    gradient.x = job.x;
    gradient.has_x = job.request.norm == hoyer::NormRule::keep || random() % 2;
    gradient.out = layout.batch(z.data());
    gradient.second = layout.batch(second.data());
    gradient.records = job.records;
    gradient.norm = job.request.norm;
    gradient.mode = static_cast<hoyer::Mode>(random() % 2);
    gradient.nonnegative = job.nonnegative;
    gradient.by_target = random() % 4 == 0;
    if (random() % 2) gradient.cache_bytes = 1;
    std::vector<double> scales(rows);
    for (std::size_t i = 0; i < rows; ++i) scales[i] = random() % 8 ? job.records[i].scale : HUGE_VAL;
    if (random() % 2) gradient.scales = scales.data();
    std::vector<hoyer::TargetProduct> target_products(rows);
    if (random() % 2) gradient.target_products = target_products.data();
    // What tensors know about their results, in place of records.
    std::vector<double> norms(rows);
    std::vector<std::int8_t> active(rows);
    std::vector<hoyer::Change> changes(rows);
    if (!job.lengths && random() % 2) {
        for (std::size_t i = 0; i < rows; ++i) {
            norms[i] = job.records[i].l2;
            active[i] = static_cast<std::int8_t>(job.records[i].active);
        }
        gradient.records = nullptr;
        gradient.ratio = job.ratio;
        gradient.l2 = job.l2;
        gradient.scales = scales.data();
        gradient.active = active.data();
        if (random() % 2) gradient.norms = norms.data();
        if (random() % 2) gradient.changes = changes.data();
    }
    core.gradient(element_of<E>(), gradient, go_on);
}

// Several copies of x in place in one call: the same comes out. Where one has a bad entry nothing is written.
template <class E>
void several(const hoyer::Core& core, Random& random, hoyer::Job job, const std::vector<E>& memory, std::size_t shift,
             const Layout& from, const std::vector<E>& out, const Layout& to) {
    const std::size_t rows = job.x.rows(), n = job.x.length(), count = 2 + random() % 3, bad = random() % (2 * count);
    std::vector<std::vector<E>> copies(count, memory);
    job.records = nullptr;
    std::vector<hoyer::ArrayJob> jobs;
    for (std::vector<E>& copy : copies) {
        job.x = job.out = from.batch(copy.data() + shift);
        jobs.push_back({element_of<E>(), random() % 4 == 0, job});
    }
    if (bad < count) copies[bad][shift + from.at(rows - 1, 0)] = static_cast<E>(std::nan(""));
    const std::int64_t expected = bad < count ? static_cast<std::int64_t>(bad * rows + rows - 1) : hoyer::all_good;
    if (core.project_many(jobs, go_on) != expected) fail("several", n, static_cast<double>(expected), 0);
    for (std::size_t which = 0; which < count; ++which) {
        for (std::size_t row = 0; row + (which == bad) < rows; ++row) {
            for (std::size_t i = 0; i < n; ++i) {
                const std::size_t place = shift + from.at(row, i);
                const auto found = static_cast<double>(copies[which][place]);
                const auto wanted = static_cast<double>(bad < count ? memory[place] : out[to.at(row, i)]);
                if (!(found == wanted)) fail("several", n, wanted, found);
            }
        }
    }
}

template <class E> void measure(const hoyer::Core& core, const hoyer::Job& job) {
    const std::size_t rows = job.x.rows(), n = job.x.length();
    std::vector<double> sigma(rows);
    core.sparseness(element_of<E>(), job.x, sigma.data(), go_on);
    const double pivots[] = {-1e300, -0.5, 0, 0.5, 1e300};
    constexpr std::size_t count = std::size(pivots);
    std::vector<hoyer::Sums> sums(rows * count);
    hoyer::SumsJob wanted;
    wanted.x = job.x;
    wanted.pivots = pivots;
    wanted.count = count;
    wanted.out = sums.data();
    wanted.nonnegative = job.nonnegative;
    core.sums(element_of<E>(), wanted, go_on);
    for (std::size_t row = 0; row < rows; ++row) {
        const hoyer::Sums* const found = sums.data() + row * count;
        if (found[0].count != static_cast<double>(n)) fail("all", n, static_cast<double>(n), found[0].count);
        if (found[count - 1].count != 0) fail("none", n, 0, found[count - 1].count);
        for (std::size_t i = 1; i < count; ++i)
            if (found[i].count > found[i - 1].count) fail("sums", n, found[i - 1].count, found[i].count);
    }
}

template <class E> void one_batch(const hoyer::Core& core, Random& random) {
    const std::size_t lengths[] = {2, 3, 7, 16, 40, 100, 300, 1500, 20000, 70000, 600000, 1 << 19};
    const std::size_t n = lengths[random() % (random() % 8 ? 10 : 12)];
    const std::size_t rows = n > 100000 ? 1 : n > 5000 ? 1 + random() % 20 : 1 + random() % 40;
    const Layout from(rows, n, random() % 2 ? 1 : 3, random() % 3 == 0), to(rows, n, 1, random() % 3 == 0);
    const int kind = static_cast<int>(random() % 6);
    // Where an array begins within a cache line is anybody's guess.
    const std::size_t shift = random() % 20;
    std::vector<E> memory(from.size + shift), out(rows * n);
    for (E& value : memory) value = static_cast<E>(draw(random, kind));
    E* const x = memory.data() + shift;

    hoyer::Job job;
    job.x = from.batch(x);
    job.out = to.batch(out.data());
    Masks masks(random, rows, n);
    const bool masked = random() % 3 == 0;
    if (masked) {
        masks.apply(job);
        // What does not count may be anything.
        for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t i = 0; i < n; ++i)
                if (!masks.counts(row, i) && random() % 2)
                    x[from.at(row, i)] = static_cast<E>(random() % 2 ? std::nan("") : -HUGE_VAL);
    }
    const Targets targets(random, rows, n, job.lengths);
    targets.apply(job);
    set_rules(job, random);
    std::vector<hoyer::Record> records(rows);
    job.records = records.data();
    if (core.project(element_of<E>(), job, go_on) != hoyer::all_good) fail("not good", n, 0, 0);
    check_norms(out, to, records.data());
    hoyer::SparseResult sparse;
    if (core.project_sparse(element_of<E>(), job, sparse, go_on) != hoyer::all_good) fail("not good", n, 0, 0);
    check_sparse(sparse, out, to);
    multiply(core, random, job, out, to);
    if (!masked) {
        measure<E>(core, job);
        several(core, random, job, memory, shift, from, out, to);
    }

    // In place the same comes out.
    job.out = job.x;
    if (core.project(element_of<E>(), job, go_on) != hoyer::all_good) fail("not good", n, 0, 0);
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t i = 0; i < n; ++i)
            if (!(static_cast<double>(x[from.at(row, i)]) == static_cast<double>(out[to.at(row, i)])))
                fail("in place", n, static_cast<double>(out[to.at(row, i)]), static_cast<double>(x[from.at(row, i)]));

    // A bad entry is found, and nothing is written.
    const std::size_t row = random() % rows, i = random() % n;
    const bool counts = !masked || masks.counts(row, i);
    x[from.at(row, i)] = static_cast<E>(std::nan(""));
    const std::int64_t expected = counts ? static_cast<std::int64_t>(row) : hoyer::all_good;
    if (core.project(element_of<E>(), job, go_on) != expected) fail("NaN", n, static_cast<double>(expected), 0);
}

void many_batches(const hoyer::Core& core, unsigned seed, int count) {
    Random random(seed);
    for (int i = 0; i < count; ++i) {
        one_batch<double>(core, random);
        one_batch<float>(core, random);
        one_batch<hoyer::Half>(core, random);
        one_batch<hoyer::BFloat16>(core, random);
    }
}

// Whatever the compiler's own half type does, the one in software does, too.
void check_halves() {
    const auto same = [](double value) {
        const float ours = hoyer::SoftwareHalf(value), theirs = static_cast<hoyer::Half>(value);
        if (std::memcmp(&ours, &theirs, sizeof ours) != 0) fail("half", 0, static_cast<double>(theirs), value);
    };
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
        const auto given = static_cast<std::uint16_t>(bits);
        const double value = static_cast<float>(std::bit_cast<hoyer::SoftwareHalf>(given));
        if (value != static_cast<double>(std::bit_cast<hoyer::Half>(given)) && value == value)
            fail("half", bits, static_cast<double>(std::bit_cast<hoyer::Half>(given)), value);
        if (!std::isfinite(value)) continue;
        // The number itself, the middle to the next one, and their neighbours.
        const double next =
            static_cast<float>(std::bit_cast<hoyer::SoftwareHalf>(static_cast<std::uint16_t>(given + 1)));
        for (const double middle : {value, std::isfinite(next) ? value / 2 + next / 2 : std::copysign(65520, value)})
            for (const double near : {middle, std::nextafter(middle, -HUGE_VAL), std::nextafter(middle, HUGE_VAL)})
                same(near);
    }
    for (const double value : {HUGE_VAL, -HUGE_VAL, 1e300, -1e-300, 5e-324, 0.0, -0.0}) same(value);
    if (!std::isnan(static_cast<float>(hoyer::SoftwareHalf(std::nan(""))))) fail("half", 0, std::nan(""), 0);
}

// A child of this process.
void go_on_in_child([[maybe_unused]] const hoyer::Core& core, [[maybe_unused]] int count) {
#if HAS_FORK
    const pid_t child = fork();
    if (child == 0) {
        const hoyer::Lent lent(4);
        many_batches(core, 99, count);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) fail("child", 0, 0, status);
#endif
}

}  // namespace

int main(int argc, char** argv) {
    const int count = argc > 1 ? std::atoi(argv[1]) : 60;
    check_halves();
    hoyer::set_thread_count(3);
    hoyer::use_openmp({team, in_no_team});
    for (const hoyer::Core* core : hoyer::available_cores()) {
        at_once(3, [=](unsigned seed) {
            // One of them has threads that are lent, more than it may use.
            const hoyer::Lent lent(seed == 2 ? 4 : 0);
            many_batches(*core, seed, count);
        });
        go_on_in_child(*core, count / 4);
        std::printf("%s: good\n", core->name);
    }
}

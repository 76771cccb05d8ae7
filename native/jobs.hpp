// What the binding hands to the core: where vectors lie, what is asked of them, and the table of functions that do it.
//
// This file is shared by all instruction sets, so it holds data and small functions, of which the linker keeps the
// baseline's (CMakeLists.txt names its objects first). What it includes of the standard library is not included again
// elsewhere in the core.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#define HOYER_INLINE inline __attribute__((always_inline))

#include "halves.hpp"

namespace hoyer {

enum class Solver { automatic, bisection, newton, newton_sqr, halley };

// Which L2 norm the result has: the one given, that of x, the one that makes it nearest to x, or any.
enum class NormRule { fixed, keep, nearest, free };
// Their names, for Python.
constexpr const char* rule_names[] = {"fixed", "keep", "nearest", "free"};

// Which norms bind: see Active in Python's projection.py.
enum class Active { both, l2, l1_direction, l1, none };

// Whether vectors with NaN or infinity are refused: as they come, or all before the first is written.
enum class Check { none, each, all_first };

// J y or J^T y.
enum class Mode { forward, reverse };

enum class Element { float16, float32, float64, bfloat16 };

// What is known of each element type, in the order of Element.
struct ElementTraits {
    const char* name;
    std::size_t size;
    double largest;  // infinity where every double fits
};
constexpr ElementTraits element_traits[] = {{"float16", 2, 65504.0},
                                            {"float32", 4, std::numeric_limits<float>::max()},
                                            {"float64", 8, std::numeric_limits<double>::infinity()},
                                            {"bfloat16", 2, 0x1.fep127}};
constexpr const ElementTraits& traits_of(Element element) { return element_traits[static_cast<int>(element)]; }

// When and how the fast search samples. Tests choose other values to force every path.
struct SamplingRules {
    std::size_t shortest = 16384;        // vectors below this length are not sampled
    std::size_t shortest_bracket = 128;  // below this length as well they are searched without a bracket
    std::size_t longest_lane = 2048;     // up to this length vectors of a batch are looked at side by side
    std::size_t shortest_sifted = 192;   // from this length on without their small entries,
    double sifted_share = 0.15;          // if K is at most this share of their length
    bool rough = true;                   // whether vectors may be searched in their own arithmetic first
    std::size_t buffer_bytes = std::size_t{4} << 20;
    double standard_errors = 3.2;  // from the sample's alpha to either end of the bracket
    double fewest = 6;             // a sample with a smaller K tells too little about alpha
    double rare = 5e-3;            // below this share of a long vector positions are noted, too
    std::size_t cache_bytes = 0;   // longer results are written past the caches; 0: as large as they are
};

// What the caller asks for, the same for every vector of a batch.
struct Request {
    NormRule norm = NormRule::fixed;
    Solver solver = Solver::automatic;
    bool only_increase = false;
    bool l1_given = false;  // vectors that keep their direction are brought to this norm
    bool at_most = false;   // the norms are upper bounds
    SamplingRules sampling;
    double eps = 0;        // of the type the user handed in, which may be narrower than the one we compute in
    double off_ratio = 0;  // how far the ratio of norms may be from the target's, relatively, for zeros to stay zero
};

template <class E> HOYER_INLINE E byte_swapped(E value) {
    unsigned char bytes[sizeof(E)];
    std::memcpy(bytes, &value, sizeof(E));
    std::reverse(bytes, bytes + sizeof(E));
    std::memcpy(&value, bytes, sizeof(E));
    return value;
}

// Axes of an array. A single one, as there mostly is, needs no memory elsewhere.
class Axes {
public:
    struct Axis {
        std::int64_t size, stride;  // stride in bytes
    };

    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    HOYER_INLINE const Axis& operator[](std::size_t i) const { return i == 0 ? first_ : others_[i - 1]; }
    const Axis& back() const { return (*this)[size_ - 1]; }
    // Neighbouring axes that continue each other become one.
    void append(Axis axis) {
        Axis& last = size_ < 2 ? first_ : others_.back();
        if (size_ > 0 && last.stride == axis.stride * axis.size) {
            last = {last.size * axis.size, axis.stride};
        } else if (size_++ == 0) {
            first_ = axis;
        } else {
            others_.push_back(axis);
        }
    }

private:
    Axis first_{};
    std::vector<Axis> others_;
    std::size_t size_ = 0;
};

// An array seen as vectors: the last `inner` axes form a vector, the others number the vectors.
class Batch {
public:
    Batch() = default;
    Batch(void* data, std::size_t ndim, std::size_t inner, const std::int64_t* shape, const std::int64_t* strides,
          std::size_t itemsize, bool swapped)
        : data_(static_cast<char*>(data)), swapped_(swapped) {
        for (std::size_t i = 0; i < ndim; ++i) {
            const Axes::Axis axis{shape[i], strides[i] * static_cast<std::int64_t>(itemsize)};
            (i + inner < ndim ? rows_ : length_) *= static_cast<std::size_t>(axis.size);
            if (axis.size != 1) (i + inner < ndim ? outer_ : inner_).append(axis);
        }
        dense_ = inner_.empty() || (inner_.size() == 1 && inner_[0].stride == static_cast<std::int64_t>(itemsize));
    }

    // Vectors of n entries one after the other.
    static Batch contiguous(void* data, std::size_t rows, std::size_t n, std::size_t itemsize) {
        const std::int64_t shape[] = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(n)};
        const std::int64_t strides[] = {shape[1], 1};
        return {data, 2, 1, shape, strides, itemsize, false};
    }

    std::size_t rows() const { return rows_; }
    std::size_t length() const { return length_; }
    bool direct() const { return dense_ && !swapped_; }

    // Whether all vectors together are one contiguous run of entries.
    bool contiguous(std::size_t itemsize) const {
        const auto row_bytes = static_cast<std::int64_t>(length_ * itemsize);
        return direct() && (outer_.empty() || (outer_.size() == 1 && outer_[0].stride == row_bytes));
    }

    // Whether vectors `index` to `index + count - 1` lie side by side: entry i of all of them next to each other, and
    // entries `entry_stride()` bytes apart.
    bool adjacent(std::size_t index, std::size_t count, std::size_t itemsize) const {
        if (swapped_ || inner_.size() != 1 || outer_.empty()) return false;
        const Axes::Axis& last = outer_.back();
        const auto size = static_cast<std::size_t>(last.size);
        return last.stride == static_cast<std::int64_t>(itemsize) && index % size + count <= size;
    }
    std::int64_t entry_stride() const { return inner_[0].stride; }

    HOYER_INLINE char* row(std::size_t index) const {
        char* at = data_;
        if (outer_.size() == 1) return at + static_cast<std::int64_t>(index) * outer_[0].stride;
        for (std::size_t i = outer_.size(); i-- > 0;) {
            const auto size = static_cast<std::size_t>(outer_[i].size);
            at += static_cast<std::int64_t>(index % size) * outer_[i].stride;
            index /= size;
        }
        return at;
    }

    // Copies vector `index` into `to`, converting each entry.
    template <class E, class T> HOYER_INLINE void gather(std::size_t index, T* to) const {
        visit(row(index), 0, [&](const char* at) {
            E value;
            std::memcpy(&value, at, sizeof(E));
            *to++ = static_cast<T>(swapped_ ? byte_swapped(value) : value);
        });
    }

    template <class E> HOYER_INLINE void scatter(std::size_t index, const E* from) const {
        visit(row(index), 0, [&](char* at) {
            const E value = swapped_ ? byte_swapped(*from) : *from;
            ++from;
            std::memcpy(at, &value, sizeof(E));
        });
    }

private:
    // Calls f at every entry of a vector, in C order of its axes.
    template <class F> void visit(char* at, std::size_t depth, F&& f) const {
        if (depth == inner_.size()) return f(at);
        const Axes::Axis axis = inner_[depth];
        for (std::int64_t i = 0; i < axis.size; ++i, at += axis.stride) {
            if (depth + 1 == inner_.size())
                f(at);
            else
                visit(at, depth + 1, f);
        }
    }

    char* data_ = nullptr;
    Axes outer_, inner_;
    std::size_t rows_ = 1, length_ = 1;
    bool swapped_ = false, dense_ = true;
};

// One number for all vectors, one each, or one for each length that they may have.
struct PerRow {
    const double* data = nullptr;
    std::size_t step = 0;
    const std::int64_t* lengths = nullptr;
    double operator[](std::size_t row) const {
        return data[(lengths ? static_cast<std::size_t>(lengths[row]) : row) * step];
    }
};

// What is told about one vector: a row of doubles. `unique` is 0 or 1, and `active` a number of Active.
struct Record {
    double shift = std::numeric_limits<double>::quiet_NaN(), scale = 0, support_size = 0, evaluations = 0, unique = 1,
           l1 = std::numeric_limits<double>::quiet_NaN(), l2 = l1, active = 0;
};
// The names of its fields in order, for Python.
constexpr const char* record_fields[] = {"shift",  "scale", "support_size", "evaluations",
                                         "unique", "l1",    "l2",           "active"};
constexpr std::size_t record_size = std::size(record_fields);
static_assert(sizeof(Record) == record_size * sizeof(double));

struct Job {
    Batch x, out;
    PerRow ratio, slack, slack_low, l2;  // l1/l2, n - K as a double-double, l2
    Request request;
    Check check = Check::none;
    Record* records = nullptr;      // of all vectors, or null
    double* scales = nullptr;       // of the same, where less is of interest: these alone,
    double* norms = nullptr;        // l2,
    std::int8_t* active = nullptr;  // and which norms bind
    bool nonnegative = false;
    Batch where;                            // masks: which entries form the vectors, as bytes
    const std::int64_t* lengths = nullptr;  // and how many these are; null if there are no masks

    std::size_t length(std::size_t row) const { return lengths ? static_cast<std::size_t>(lengths[row]) : x.length(); }
};

// The derivatives of a result by its norms l1 and l2, times y; and <p, y>, which is that by the logarithm of both.
struct TargetProduct {
    double by_l1, by_l2, by_both;
};

// The same as derivatives by what is asked for: see Changes in Python's products.py.
struct Change {
    double ratio, log_norm, log_kept, log_l1;
};
constexpr const char* change_fields[] = {"ratio", "log_norm", "log_kept", "log_l1"};
static_assert(sizeof(Change) == std::size(change_fields) * sizeof(double));

struct GradientJob {
    Batch value, y, x, out;
    Batch second;                         // the second result of target_gradient
    const Record* records = nullptr;      // of each vector; or null, and what follows says the same
    const double* scales = nullptr;       // in place of those in the records, or null
    PerRow ratio, l2;                     // the target
    const double* norms = nullptr;        // l2 where the target does not tell it; null: that of the results
    const std::int8_t* active = nullptr;  // null: the norms that the rule names
    bool has_x = false;  // needed with the "keep" rule, used elsewhere where the result has lost digits
    TargetProduct* target_products = nullptr;  // of each vector, or null
    Change* changes = nullptr;                 // likewise
    bool both_norms = false;                   // for these: whether l1 and l2 were given, rather than a sparseness
    NormRule norm = NormRule::fixed;
    Mode mode = Mode::forward;
    bool nonnegative = false;
    bool by_target = false;       // target_gradient instead of a product
    std::size_t cache_bytes = 0;  // longer results are written past the caches, and small supports noted; 0: as above
};

// One of several arrays that are projected in one call.
struct ArrayJob {
    Element element;
    bool alone;  // its memory is another one's, too: they take turns, in their order
    Job job;
};

// What Algorithm 1 tells about the entries above a pivot.
struct Sums {
    double count, mean, deviation;  // the standard deviation about the mean; both NaN where no entry is above
    double below, above;            // the largest entry not above the pivot and the smallest above it, or infinities
};
constexpr const char* sum_fields[] = {"count", "mean", "deviation", "below", "above"};
static_assert(sizeof(Sums) == std::size(sum_fields) * sizeof(double));

// What one reading of a vector tells: its smallest and largest entry, and mean and standard deviation of all of them.
// NaN if it is not finite.
struct Summary {
    double low, high, mean, deviation;
};
constexpr const char* summary_fields[] = {"low", "high", "mean", "deviation"};
static_assert(sizeof(Summary) == std::size(summary_fields) * sizeof(double));

struct SumsJob {
    Batch x;
    const double* pivots = nullptr;  // `count` for each vector
    std::size_t count = 0;
    std::size_t pivot_step = 0;          // from the pivots of one vector to those of the next; 0: all share them
    const Summary* known = nullptr;      // of each vector, which is then not read for it; or null
    const double* references = nullptr;  // likewise: a number near the mean of what lies above the pivots
    Sums* out = nullptr;                 // `count` for each vector
    bool nonnegative = false;            // the entries are x, not |x|
};

// What lies above the higher of two pivots of each vector, and the entries between them.
struct BetweenJob {
    Batch x;
    const double *lows = nullptr, *highs = nullptr;
    const Summary* known = nullptr;
    const double* references = nullptr;                  // as in SumsJob
    Sums* out = nullptr;                                 // NaN where a pivot is, or where entries are of extreme sizes
    std::vector<std::vector<double>>* inside = nullptr;  // one for each vector
    bool nonnegative = false;
};

struct SummaryJob {
    Batch x;
    Summary* out = nullptr;
    bool nonnegative = false;
};

// The histogram of a part of a vector, whose floats are ordered as integers: their keys.
constexpr int limb_bits = 48;
constexpr std::size_t most_bins = 4096;
constexpr std::size_t most_levels = 3;
constexpr int widest_bin = 52;
// How many limbs the sum of 2^42 numbers takes that have so many bits; the last limb takes all that is left.
constexpr std::size_t limbs_for(int bits) {
    constexpr int spare = 21;
    return bits <= spare ? 1 : 1 + static_cast<std::size_t>((bits - spare + limb_bits - 1) / limb_bits);
}

// `count` bins of 2^width keys each, the first of which starts so far from `HistogramJob::lower`.
struct BinLevel {
    std::int64_t start = 0;
    int width = 0;
    std::uint64_t count = 0;
};

// What is asked about one part: of `span` keys from `lower` on, in up to three levels of bins; a key belongs to the
// first level that has a bin for it. Moments are those of the low `width` bits of a key's distance from `lower`.
struct HistogramJob {
    Batch x, where;
    bool masked = false;       // the entries that count are those in `where`
    bool nonnegative = false;  // the entries are x, not |x|
    std::int64_t lower = 0;
    std::uint64_t span = 0;
    int width = 0;
    std::array<BinLevel, most_levels> levels;
    std::int64_t* out = nullptr;  // how many are not finite, and zero; counts; limbs of the first and second moments

    std::size_t bins() const {
        std::size_t bins = 0;
        for (const BinLevel& level : levels) bins += level.count;
        return bins;
    }
    std::size_t size() const { return 2 + (1 + limbs_for(width) + limbs_for(2 * width)) * bins(); }
};

// What is known of a part before its first histogram, as 64-bit integers.
struct Outline {
    std::int64_t top = std::numeric_limits<std::int64_t>::min();     // the largest key; the least integer: no entry
    std::int64_t bottom = std::numeric_limits<std::int64_t>::max();  // the smallest one
    std::int64_t below = top;                                        // the next smaller key than the top
    std::int64_t place = 0, ties = 0;                                // of the largest: the first one, and how many
    std::int64_t zeros = 0, not_finite = 0;
};
constexpr const char* outline_fields[] = {"top", "bottom", "below", "place", "ties", "zeros", "bad"};
static_assert(sizeof(Outline) == std::size(outline_fields) * sizeof(std::int64_t));

// What entries above `pivot` get, once all is known about the vector: (base + (t - mean) * gain) * power with
// t = (before * x - before * reference) * after. Where entries are tied the first of them has a base of its own.
struct Formula {
    double pivot, reference, before, after, mean, gain, base, power, first;
    double shift, scale;  // (x - shift)/scale is the same, if numbers of the data's type do
};
constexpr const char* formula_fields[] = {"pivot", "reference", "before", "after", "mean", "gain",
                                          "base",  "power",     "first",  "shift", "scale"};
static_assert(sizeof(Formula) == std::size(formula_fields) * sizeof(double));

// The nonzero entries of many results, one after the other.
struct SparseResult {
    std::vector<std::int64_t> starts, indices;  // vector i has entries starts[i] to starts[i + 1]
    std::vector<std::uint8_t> values;           // of the element type, as bytes
};

constexpr std::int64_t all_good = -1, interrupted = -2;

// The core, compiled for one instruction set. `go_on` is asked now and then whether to continue.
struct Core {
    const char* name;
    std::int64_t (*project)(Element, const Job&, bool (*go_on)());
    // All of several arrays, or nothing of any; a bad vector is counted through the arrays.
    std::int64_t (*project_many)(const std::vector<ArrayJob>&, bool (*go_on)());
    std::int64_t (*project_sparse)(Element, const Job&, SparseResult&, bool (*go_on)());
    std::int64_t (*gradient)(Element, const GradientJob&, bool (*go_on)());
    std::int64_t (*sums)(Element, const SumsJob&, bool (*go_on)());
    std::int64_t (*summary)(Element, const SummaryJob&, bool (*go_on)());
    std::int64_t (*between)(Element, const BetweenJob&, bool (*go_on)());
    std::int64_t (*sparseness)(Element, const Batch&, double* out, bool (*go_on)());
    std::int64_t (*count)(const Batch& masks, std::int64_t* lengths, bool (*go_on)());
    std::int64_t (*histogram)(Element, const HistogramJob&, bool (*go_on)());
    std::int64_t (*gather)(Element, const HistogramJob&, bool places, std::vector<std::int64_t>& keys, bool (*go_on)());
    std::int64_t (*neighbours)(Element, const HistogramJob&, bool (*go_on)());
    std::int64_t (*write)(Element, const HistogramJob&, const Batch& out, const Formula&, std::int64_t place);
    std::int64_t (*outline)(Element, const HistogramJob&, bool (*go_on)());  // writes an Outline
};

}  // namespace hoyer

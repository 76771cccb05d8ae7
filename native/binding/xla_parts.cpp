// Parts of vectors that devices share, in XLA's programs on the CPU: what each device is asked for, and what it writes.
#include <nanobind/nanobind.h>

#include "binding/handlers.hpp"
#include "binding/xla_call.hpp"

namespace hoyer::xla {
namespace {

// Limbs of JAX's integers: see hoyer.engines.jax.integers.
constexpr int limb = 26;

constexpr std::size_t bin_count = most_bins;

// Adds a number times 2^bit to limbs, one for every bin in a row; the last limb takes all that is left.
void add_shifted(std::int64_t number, int bit, std::int64_t* to, std::size_t limbs) {
    auto shifted = static_cast<__int128>(number) << bit % limb;
    for (std::size_t i = static_cast<std::size_t>(bit / limb); i < limbs && shifted != 0; ++i, shifted >>= limb)
        to[i * bin_count] += static_cast<std::int64_t>(i + 1 < limbs ? shifted & ((1 << limb) - 1) : shifted);
}

// The core's table of counts and moments in its own limbs, as many as the width needs, in those of JAX.
void told(const std::vector<std::int64_t>& table, int width, std::size_t first, std::size_t second, std::int64_t* out) {
    const std::size_t limbs[] = {limbs_for(width), limbs_for(2 * width)}, own[] = {first, second};
    const std::int64_t* from = table.data() + 2;
    std::copy_n(from, bin_count, out);
    std::fill_n(out + bin_count, (first + second) * bin_count, std::int64_t{0});
    from += bin_count;
    out += bin_count;
    for (int moment = 0; moment < 2; out += own[moment++] * bin_count)
        for (std::size_t i = 0; i < limbs[moment]; ++i, from += bin_count)
            for (std::size_t bin = 0; bin < bin_count; ++bin)
                if (from[bin]) add_shifted(from[bin], limb_bits * static_cast<int>(i), out + bin, own[moment]);
}

// What handlers of parts are given: vectors, integers for each, the mask if there is one, room for the result.
struct Given {
    const Buffer *x, *numbers, *where, *out;
    Element element;
    std::size_t rows, itemsize;
    bool nonnegative;

    Batch part(const Buffer& buffer, std::size_t row, std::size_t size) const {
        const std::size_t n = buffer.last();
        return Batch::contiguous(static_cast<char*>(buffer.data) + row * n * size, 1, n, size);
    }

    // What is asked about one part.
    HistogramJob job(std::size_t row) const {
        HistogramJob job;
        job.x = part(*x, row, itemsize);
        job.masked = where != nullptr;
        if (where) job.where = part(*where, row, sizeof(bool));
        job.nonnegative = nonnegative;
        return job;
    }
};

std::optional<Given> given_to(const CallFrame& frame, std::size_t columns) {
    const Buffers& in = frame.arguments;
    std::int64_t nonnegative = 0;
    if ((in.size != 2 && in.size != 3) || frame.results.size != 1 || !frame.attributes.read("nonnegative", nonnegative))
        return std::nullopt;
    const Buffer* const where = in.size == 3 ? in.items[2] : nullptr;
    const auto element = element_of(in.items[0]->type);
    const std::size_t rows = in.items[0]->count(1);
    if (!element || in.items[1]->type != Type::s64 || in.items[1]->count() != rows * columns ||
        (where && (where->type != Type::boolean || !same_shape(*in.items[0], *where))))
        return std::nullopt;
    return Given{in.items[0],     in.items[1], where, frame.results.items[0], *element, rows, traits_of(*element).size,
                 nonnegative != 0};
}

// Arguments: parts; where the first bin starts, and how many bits the bins leave open, for each; masks, if there are
// any. Result: counts, and the limbs of sums and sums of squares of the bits left open.
Error* histogram(const CallFrame& frame) {
    const auto given = given_to(frame, 2);
    std::int64_t first = 0;
    if (!given || !frame.attributes.read("first", first) || given->out->type != Type::s64 ||
        given->out->last() != bin_count)
        return frame.error("hoyer_histogram: called with other arguments");
    const Buffer& out = *given->out;
    const std::size_t columns = given->rows ? out.count(1) / given->rows : 0;
    const auto limbs = static_cast<std::size_t>(first);
    for (std::size_t row = 0; row < given->rows; ++row) {
        const std::int64_t* const bounds = static_cast<const std::int64_t*>(given->numbers->data) + 2 * row;
        if (bounds[1] < 0 || bounds[1] > widest_bin || columns <= 1 + limbs)
            return frame.error("hoyer_histogram: bins of no such width");
        HistogramJob job = given->job(row);
        job.lower = bounds[0];
        job.width = static_cast<int>(bounds[1]);
        job.levels[0] = {0, job.width, bin_count};
        // All keys there are have no more than 64 bits.
        job.span = job.width == widest_bin ? ~std::uint64_t{0} : std::uint64_t{bin_count} << job.width;
        std::vector<std::int64_t> table(job.size());
        job.out = table.data();
        chosen->histogram(given->element, job, go_on);
        told(table, job.width, limbs, columns - 1 - limbs,
             static_cast<std::int64_t*>(out.data) + row * columns * bin_count);
    }
    return nullptr;
}

// Arguments: parts; the place of the first entry in the vector, for each; masks, if there are any. Result: an `Outline`
// of each part, with places in the vector.
Error* outline(const CallFrame& frame) {
    const auto given = given_to(frame, 1);
    if (!given || given->out->type != Type::s64 || given->out->count() != given->rows * std::size(outline_fields))
        return frame.error("hoyer_outline: called with other arguments");
    const Buffer& out = *given->out;
    for (std::size_t row = 0; row < given->rows; ++row) {
        Outline found;
        HistogramJob job = given->job(row);
        job.out = reinterpret_cast<std::int64_t*>(&found);
        chosen->outline(given->element, job, go_on);
        if (found.ties) found.place += static_cast<std::int64_t*>(given->numbers->data)[row];
        std::memcpy(static_cast<Outline*>(out.data) + row, &found, sizeof(found));
    }
    return nullptr;
}

// The float of 32 or 64 bits with a key, or an infinity: keys beyond them stand for what all entries are above or
// below.
template <class Bits, class T> double number_of(std::int64_t key) {
    const auto size = static_cast<std::uint64_t>(key < 0 ? -key : key);
    const auto infinity = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
    const double number = std::bit_cast<T>(static_cast<Bits>(std::min<std::uint64_t>(size, infinity)));
    return key < 0 ? -number : number;
}

// A line as hoyer.engines.jax.solution has it: (base + ((x - reference) - rest) * gain) * 2^power above the pivot,
// which is a key, and x in units of 2^exponent. The entry at `place` has a base of its own.
struct Line {
    std::int64_t pivot, exponent;
    double reference, rest, gain, base, first;
    std::int64_t place, power;

    // The same in the core's terms. Powers of two are left out where ordinary arithmetic does without.
    Formula formula(bool wide) const {
        const int e = static_cast<int>(exponent), q = static_cast<int>(power);
        const int unit = left_out(e), norm = left_out(q), halved = e > 1000 ? 1 : 0, frame = e - halved - unit;
        const auto at_norm = [&](double number, int more) { return std::ldexp(number, q - norm + more); };
        const double none = std::numeric_limits<double>::quiet_NaN();
        const bool slopes = gain > 0;
        // Among subnormal numbers the reference loses digits.
        const double at = std::ldexp(reference, e), lost = reference - std::ldexp(at, -e);
        return {wide ? number_of<std::uint64_t, double>(pivot) : number_of<std::uint32_t, float>(pivot),
                at,
                halved ? 0.5 : 1.0,
                std::ldexp(1.0, -unit),
                std::ldexp(rest + lost, frame),
                at_norm(gain, -frame),
                at_norm(base, 0),
                std::ldexp(1.0, norm),
                at_norm(first, 0),
                slopes ? std::ldexp(reference + (rest - base / gain), e) : none,
                slopes ? std::ldexp(1 / gain, e - q) : 0.0};
    }

private:
    static int left_out(int exponent) { return std::abs(exponent) < 300 ? 0 : std::clamp(exponent, -1022, 1021); }
};

// Arguments: parts; a line for each, by its bits. Result: what comes of the parts.
Error* write(const CallFrame& frame) {
    const auto given = given_to(frame, sizeof(Line) / sizeof(std::int64_t));
    if (!given || given->where || given->out->type != given->x->type || !same_shape(*given->x, *given->out))
        return frame.error("hoyer_write: called with other arguments");
    const Buffer& out = *given->out;
    const std::size_t n = out.last();
    if (n == 0) return nullptr;
    expect_writes(out, given->itemsize);
    for (std::size_t row = 0; row < given->rows; ++row) {
        const Line& line = static_cast<const Line*>(given->numbers->data)[row];
        const bool is_here = line.place >= 0 && line.place < static_cast<std::int64_t>(n);
        chosen->write(given->element, given->job(row), given->part(out, row, given->itemsize),
                      line.formula(given->element == Element::float64), is_here ? line.place : -1);
    }
    return nullptr;
}

}  // namespace

void add_part_handlers(nanobind::dict& handlers) {
    handlers["hoyer_histogram"] = nanobind::capsule(reinterpret_cast<const void*>(&handler<histogram>));
    handlers["hoyer_outline"] = nanobind::capsule(reinterpret_cast<const void*>(&handler<outline>));
    handlers["hoyer_write"] = nanobind::capsule(reinterpret_cast<const void*>(&handler<write>));
}

}  // namespace hoyer::xla

// The everyday call, with as little Python as possible: contiguous arrays of a native floating type, vectors along the
// last axis, plain numbers as targets. Whatever is not like that, or wrong, goes the long way, which finds the words.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "binding/plan.hpp"

namespace hoyer {

// A buffer of an array, given back in the end.
class ArrayBuffer {
public:
    ArrayBuffer(PyObject* array, bool writable) {
        const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
        held_ = PyObject_GetBuffer(array, &view_, flags) == 0;
        if (!held_) PyErr_Clear();
    }
    ArrayBuffer(const ArrayBuffer&) = delete;
    ~ArrayBuffer() {
        if (held_) PyBuffer_Release(&view_);
    }

    std::optional<Element> element() const {
        if (!held_ || view_.ndim < 1 || !view_.format || view_.format[0] == '\0' || view_.format[1] != '\0') return {};
        if (reinterpret_cast<std::uintptr_t>(view_.buf) % static_cast<std::uintptr_t>(view_.itemsize)) return {};
        switch (view_.format[0]) {
            case 'e':
                return Element::float16;
            case 'f':
                return Element::float32;
            case 'd':
                return Element::float64;
            default:
                return {};
        }
    }
    std::size_t length() const { return static_cast<std::size_t>(view_.shape[view_.ndim - 1]); }
    std::size_t rows() const { return size() / length(); }
    int ndim() const { return view_.ndim; }
    std::size_t size() const { return static_cast<std::size_t>(view_.len / view_.itemsize); }
    Batch batch() const {
        return Batch::contiguous(view_.buf, rows(), length(), static_cast<std::size_t>(view_.itemsize));
    }
    bool same_shape(const ArrayBuffer& other) const {
        return view_.ndim == other.view_.ndim && std::equal(view_.shape, view_.shape + view_.ndim, other.view_.shape);
    }
    bool same_memory(const ArrayBuffer& other) const { return view_.buf == other.view_.buf; }
    bool overlaps(const ArrayBuffer& other) const {
        const char *a = static_cast<const char*>(view_.buf), *b = static_cast<const char*>(other.view_.buf);
        return a < b + other.view_.len && b < a + view_.len;
    }

private:
    Py_buffer view_{};
    bool held_ = false;
};

// Options as given: numbers, or null where there is none.
struct CallKey {
    std::size_t n = 0;
    std::uint64_t sparseness = 0, l1 = 0, l2 = 0;  // bits of the numbers
    std::uint32_t given = 0;                       // which of them, and everything else
    bool operator==(const CallKey&) const = default;
};

struct CallHash {
    std::size_t operator()(const CallKey& key) const {
        std::uint64_t hash = key.n * 0x9e3779b97f4a7c15u;
        for (const std::uint64_t part : {key.sparseness, key.l1, key.l2, std::uint64_t{key.given}})
            hash = (std::rotl(hash, 23) ^ part) * 0x9e3779b97f4a7c15u;
        return hash ^ hash >> 32;
    }
};

// The fields of Python's Options, in order; a test compares them.
constexpr const char* option_fields[] = {"sparseness",    "l1",     "l2",          "axis", "nonnegative",
                                         "only_increase", "solver", "check_finite"};

// Options in the order of Python's Options; nothing if any of them is of another type than the obvious one. (Numbers
// that are equal but of another type, 1 and True, are different options.)
inline std::optional<CallKey> key_of(PyObject* options, const ArrayBuffer& x) {
    enum { sparseness, l1, l2, axis, nonnegative, only_increase, solver, check_finite };
    if (!PyTuple_Check(options) || PyTuple_Size(options) != std::size(option_fields)) return {};
    const auto item = [&](int i) { return PyTuple_GetItem(options, i); };
    const auto is_text = [](PyObject* object, const char* text) {
        return PyUnicode_CheckExact(object) && PyUnicode_CompareWithASCIIString(object, text) == 0;
    };
    CallKey key;
    key.n = x.length();
    int shift = 0;
    const auto note = [&](std::uint32_t code, int bits) { key.given |= code << std::exchange(shift, shift + bits); };
    const auto number = [&](int i, std::uint64_t& bits) -> std::optional<std::uint32_t> {
        PyObject* object = item(i);
        if (object == Py_None) return 0u;
        if (!PyFloat_CheckExact(object)) return {};
        bits = std::bit_cast<std::uint64_t>(PyFloat_AsDouble(object));
        return 1u;
    };
    const auto first = number(sparseness, key.sparseness), second = number(l1, key.l1);
    auto third = number(l2, key.l2);
    if (!third && is_text(item(l2), "keep")) third = 2;
    if (!third && is_text(item(l2), "nearest")) third = 3;
    if (!first || !second || !third) return {};
    note(*first, 1);
    note(*second, 1);
    note(*third, 2);
    PyObject* const given_axis = item(axis);
    if (given_axis != Py_None || x.ndim() > 1) {
        if (!PyLong_CheckExact(given_axis)) return {};
        const long number_of_axis = PyLong_AsLong(given_axis);
        if (PyErr_Occurred()) {
            PyErr_Clear();  // an integer that does not fit
            return {};
        }
        if (number_of_axis != -1 && number_of_axis != x.ndim() - 1) return {};
    }
    for (const int i : {nonnegative, only_increase, check_finite}) {
        if (item(i) != Py_True && item(i) != Py_False) return {};
        note(item(i) == Py_True, 1);
    }
    for (const auto& [name, value] : solvers) {
        if (!is_text(item(solver), name.data())) continue;
        note(static_cast<std::uint32_t>(value), 3);
        return key;
    }
    return {};
}

// The plans of everyday calls made before.
class EverydayPlans {
public:
    std::shared_ptr<const Plan> find(const CallKey& key) {
        std::lock_guard lock(mutex_);
        const auto place = plans_.find(key);
        return place == plans_.end() ? nullptr : place->second;
    }
    std::shared_ptr<const Plan> remember(const CallKey& key, const Plan& plan) {
        std::lock_guard lock(mutex_);
        // Whoever has that many targets does not come back to the first ones soon.
        if (plans_.size() >= 256) plans_.clear();
        return plans_.insert_or_assign(key, std::make_shared<const Plan>(plan)).first->second;
    }

private:
    std::mutex mutex_;
    std::unordered_map<CallKey, std::shared_ptr<const Plan>, CallHash> plans_;
};

}  // namespace hoyer

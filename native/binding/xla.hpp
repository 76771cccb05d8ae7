// XLA's interface for foreign functions, as much of it as our handlers need.
//
// These are the memory layouts of its C interface, version 0.1, in our own words: nothing of XLA is included or linked,
// so that the core is built without it, and the one function that is called comes with each call. XLA accepts handlers
// of an older minor version, for fields are only added at the end of a struct; tests compare these layouts with the
// header that jaxlib ships.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hoyer::xla {

inline constexpr int version_major = 0, version_minor = 1;

enum class Type : std::int32_t { boolean = 1, s8 = 2, s64 = 5, u32 = 8, f16 = 10, f32 = 11, f64 = 12, bf16 = 16 };
enum class Stage : std::int32_t { instantiate, prepare, initialize, execute };
enum class AttributeType : std::int32_t { array = 1, dictionary, scalar, string };
enum class ErrorCode : std::int32_t { invalid_argument = 3, resource_exhausted = 8, internal = 13 };
inline constexpr std::int32_t metadata_extension = 1;

struct Error;  // XLA's own

struct Extension {
    std::size_t struct_size;
    std::int32_t type;
    Extension* next;
};
struct Version {
    std::size_t struct_size;
    Extension* extensions;
    int major, minor;
};
struct Metadata {
    std::size_t struct_size;
    Version version;
    std::uint32_t traits;
};
struct MetadataExtension {
    Extension base;
    Metadata* metadata;
};
struct ErrorArguments {
    std::size_t struct_size;
    Extension* extensions;
    const char* message;
    ErrorCode code;
};
struct Api {
    std::size_t struct_size;
    Extension* extensions;
    Version version;
    const void* internal;
    Error* (*create_error)(ErrorArguments*);
};
struct Buffer {
    std::size_t struct_size;
    Extension* extensions;
    Type type;
    void* data;
    std::int64_t rank;
    std::int64_t* sizes;

    // The number of entries, but for the last `inner` axes.
    std::size_t count(std::int64_t inner = 0) const {
        std::size_t total = 1;
        for (std::int64_t i = 0; i + inner < rank; ++i) total *= static_cast<std::size_t>(sizes[i]);
        return total;
    }
    std::size_t last() const { return rank > 0 ? static_cast<std::size_t>(sizes[rank - 1]) : 0; }
};
struct Buffers {
    std::size_t struct_size;
    Extension* extensions;
    std::int64_t size;
    std::int32_t* types;  // all of them buffers
    Buffer** items;
};
struct Name {
    const char* data;
    std::size_t size;
};
struct Scalar {
    Type type;
    void* value;
};
struct Attributes {
    std::size_t struct_size;
    Extension* extensions;
    std::int64_t size;
    AttributeType* types;
    Name** names;
    void** items;

    // An integer by its name; false if there is none.
    bool read(std::string_view name, std::int64_t& to) const {
        for (std::int64_t i = 0; i < size; ++i) {
            if (std::string_view(names[i]->data, names[i]->size) != name || types[i] != AttributeType::scalar) continue;
            const auto* scalar = static_cast<const Scalar*>(items[i]);
            if (scalar->type != Type::s64) return false;
            std::memcpy(&to, scalar->value, sizeof(to));
            return true;
        }
        return false;
    }
};
struct CallFrame {
    std::size_t struct_size;
    Extension* extensions;
    const Api* api;
    void* context;
    Stage stage;
    Buffers arguments, results;
    Attributes attributes;

    Error* error(const char* message, ErrorCode code = ErrorCode::invalid_argument) const {
        ErrorArguments given{sizeof(ErrorArguments), nullptr, message, code};
        return api->create_error(&given);
    }

    // Whether XLA asks for the version that a handler was made for; then it has been answered.
    bool asks_for_version() const {
        if (!extensions || extensions->type != metadata_extension) return false;
        Metadata& told = *reinterpret_cast<MetadataExtension*>(extensions)->metadata;
        told.version.major = version_major;
        told.version.minor = version_minor;
        told.traits = 0;
        return true;
    }
};

}  // namespace hoyer::xla

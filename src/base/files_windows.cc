#include <windows.h>
// windows.h comes first.
#include <fcntl.h>
#include <io.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <cwchar>
#include <new>

#include "base/files.h"

namespace metal_marlin {
namespace {

/// An errno for an error that the library or its hosts tell from others, else an HRESULT.
int number_of(DWORD error) {
  switch (error) {
    case ERROR_SUCCESS:
      return 0;
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_DRIVE:
    case ERROR_INVALID_NAME:
    case ERROR_BAD_NETPATH:
    case ERROR_BAD_NET_NAME:
      return ENOENT;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS:
      return EEXIST;
    case ERROR_ACCESS_DENIED:
      return EACCES;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY:
    case ERROR_COMMITMENT_LIMIT:
      return ENOMEM;
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL:
      return ENOSPC;
    case ERROR_INVALID_FUNCTION:
    case ERROR_NOT_SUPPORTED:
      return ENOSYS;
    default:
      return HRESULT_FROM_WIN32(error);
  }
}
/// After a function of the system that failed.
int last_error() {
  const int number = number_of(GetLastError());
  return number != 0 ? number : EIO;
}
int error_of(BOOL succeeded) { return succeeded ? 0 : last_error(); }

/// The path in the system's letters. A path that may be too long gets its whole form,
/// which has no limit. After an error, the path is empty, which names nothing.
std::wstring wide(std::string_view path) noexcept try {
  std::wstring text(path.size(), L'\0');
  const int units =
      MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path.data(), static_cast<int>(path.size()),
                          text.data(), static_cast<int>(text.size()));
  text.resize(static_cast<size_t>(std::max(units, 0)));
  constexpr size_t kShort = MAX_PATH - 12;  // of a folder, which has room for a file of DOS
  if (text.size() < kShort || text.starts_with(L"\\\\?\\")) return text;
  std::wstring whole(GetFullPathNameW(text.c_str(), 0, nullptr, nullptr), L'\0');
  whole.resize(
      GetFullPathNameW(text.c_str(), static_cast<DWORD>(whole.size()), whole.data(), nullptr));
  return whole.starts_with(L"\\\\") ? L"\\\\?\\UNC" + whole.substr(1) : L"\\\\?\\" + whole;
} catch (const std::bad_alloc&) {
  return {};
}

std::string narrow(std::wstring_view text) {
  std::string bytes(3 * text.size(), '\0');
  bytes.resize(static_cast<size_t>(
      WideCharToMultiByte(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), bytes.data(),
                          static_cast<int>(bytes.size()), nullptr, nullptr)));
  return bytes;
}

/// What the system says about an HRESULT, in its language.
std::string words_of(HRESULT error) {
  wchar_t text[160];
  DWORD size =
      FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, nullptr,
                     static_cast<DWORD>(error) & 0xffff, 0, text, std::size(text), nullptr);
  while (size != 0 && std::wcschr(L"\r\n. ", text[size - 1]) != nullptr) --size;
  return size != 0 ? narrow({text, size}) : "error " + std::to_string(error & 0xffff);
}

HANDLE handle_of(int descriptor) { return reinterpret_cast<HANDLE>(_get_osfhandle(descriptor)); }

/// Opens a path, perhaps a folder's, so that others may still rename and remove it.
files::File open_as(const std::string& path, DWORD access, DWORD disposition, DWORD flags = 0) {
  const HANDLE handle = CreateFileW(wide(path).c_str(), access,
                                    FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                                    disposition, FILE_FLAG_BACKUP_SEMANTICS | flags, nullptr);
  if (handle == INVALID_HANDLE_VALUE) return files::File();
  const int descriptor = _open_osfhandle(reinterpret_cast<intptr_t>(handle), _O_BINARY);
  if (descriptor < 0) {
    CloseHandle(handle);
    SetLastError(ERROR_TOO_MANY_OPEN_FILES);
  }
  return files::File(descriptor);
}

files::Kind kind_of(HANDLE handle, DWORD attributes) {
  // Not all of these marks make a link: files that a cloud keeps have one, too.
  FILE_ATTRIBUTE_TAG_INFO tag{};
  if ((attributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0 &&
      GetFileInformationByHandleEx(handle, FileAttributeTagInfo, &tag, sizeof tag) &&
      IsReparseTagNameSurrogate(tag.ReparseTag))
    return files::Kind::link;
  return (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0 ? files::Kind::folder : files::Kind::regular;
}

int examine_as(const std::string& path, DWORD flags, files::Facts& facts) {
  const files::File file = open_as(path, FILE_READ_ATTRIBUTES, OPEN_EXISTING, flags);
  return file.is_open() ? file.examine(facts) : last_error();
}

}  // namespace

Status file_error(const std::string& path, const char* what, int error) {
  char buffer[96] = "";
  if (error >= 0) strerror_s(buffer, sizeof buffer, error);
  const marlin_status code = error == ENOMEM ? MARLIN_E_MEMORY : MARLIN_E_FILE;
  return Status::error(code, "%.120s: %s: %s", path.c_str(), what,
                       error >= 0 ? buffer : words_of(error).c_str())
      .with_native(error);
}

namespace files {

int examine(const std::string& path, Facts& facts) { return examine_as(path, 0, facts); }
int examine_name(const std::string& path, Facts& facts) {
  return examine_as(path, FILE_FLAG_OPEN_REPARSE_POINT, facts);
}

bool exists(const std::string& path) {
  return GetFileAttributesW(wide(path).c_str()) != INVALID_FILE_ATTRIBUTES;
}

int list(const std::string& folder, std::vector<std::string>& names) {
  WIN32_FIND_DATAW found;
  const HANDLE search = FindFirstFileW(wide(as_folder(folder) + "*").c_str(), &found);
  if (search == INVALID_HANDLE_VALUE) return last_error();
  do names.push_back(narrow(found.cFileName));
  while (FindNextFileW(search, &found));
  const DWORD error = GetLastError();
  FindClose(search);
  return error == ERROR_NO_MORE_FILES ? 0 : number_of(error);
}

int make_folder(const std::string& path, bool) {
  return error_of(CreateDirectoryW(wide(path).c_str(), nullptr));
}
int remove_folder(const std::string& path) {
  return error_of(RemoveDirectoryW(wide(path).c_str()));
}

File::~File() {
  if (is_open()) _close(descriptor_);
}

int File::open(const std::string& path) {
  *this = open_as(path, GENERIC_READ, OPEN_EXISTING);
  return is_open() ? 0 : last_error();
}

int File::create(const std::string& path) {
  *this = open_as(path, GENERIC_WRITE, CREATE_NEW);
  return is_open() ? 0 : last_error();
}

int File::examine(Facts& facts) const {
  const HANDLE handle = handle_of(descriptor_);
  if (const DWORD type = GetFileType(handle); type != FILE_TYPE_DISK) {
    facts.kind = type == FILE_TYPE_PIPE ? Kind::pipe : Kind::other;
    return 0;
  }
  BY_HANDLE_FILE_INFORMATION found;
  if (!GetFileInformationByHandle(handle, &found)) return last_error();
  facts.kind = kind_of(handle, found.dwFileAttributes);
  facts.bytes = uint64_t{found.nFileSizeHigh} << 32 | found.nFileSizeLow;
  facts.id = {found.dwVolumeSerialNumber,
              uint64_t{found.nFileIndexHigh} << 32 | found.nFileIndexLow};
  return 0;
}

int File::reserve(uint64_t bytes) const {
  if (bytes > INT64_MAX) return EFBIG;
  FILE_END_OF_FILE_INFO end{};
  end.EndOfFile.QuadPart = static_cast<int64_t>(bytes);
  return error_of(
      SetFileInformationByHandle(handle_of(descriptor_), FileEndOfFileInfo, &end, sizeof end));
}

int File::write(uint64_t offset, std::span<const std::byte> bytes) const {
  constexpr size_t kPiece = size_t{1} << 30;  // a call takes a number of 32 bits
  while (!bytes.empty()) {
    OVERLAPPED place{};
    place.Offset = static_cast<DWORD>(offset);
    place.OffsetHigh = static_cast<DWORD>(offset >> 32);
    DWORD written = 0;
    if (!WriteFile(handle_of(descriptor_), bytes.data(),
                   static_cast<DWORD>(std::min(bytes.size(), kPiece)), &written, &place))
      return last_error();
    if (written == 0) return ENOSPC;
    bytes = bytes.subspan(written);
    offset += written;
  }
  return 0;
}

int File::sync() const { return error_of(FlushFileBuffers(handle_of(descriptor_))); }

int File::map(size_t bytes, std::span<const std::byte>& mapped) const {
  const HANDLE whole =
      CreateFileMappingW(handle_of(descriptor_), nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (whole == nullptr) return last_error();
  const void* const data = MapViewOfFile(whole, FILE_MAP_READ, 0, 0, bytes);
  const int error = data != nullptr ? 0 : last_error();
  CloseHandle(whole);  // the view keeps it
  if (error == 0) mapped = {static_cast<const std::byte*>(data), bytes};
  return error;
}

/// No file is without a name here.
std::string File::link_path() const { return ""; }
int open_nameless(const char*) noexcept { return -1; }

void unmap(std::span<const std::byte> mapped) { UnmapViewOfFile(mapped.data()); }

void release_pages(std::span<const std::byte> part) {
  // Unlocking pages that are not locked fails, and takes them from the memory of the process.
  if (!part.empty()) VirtualUnlock(const_cast<std::byte*>(part.data()), part.size());
}

/// The system writes names in an order that survives a loss of power.
void sync_folder(const std::string&) {}

int link(const char* from, const char* to) noexcept {
  return error_of(CreateHardLinkW(wide(to).c_str(), wide(from).c_str(), nullptr));
}

int rename(const char* from, const char* to) noexcept {
  return error_of(MoveFileExW(wide(from).c_str(), wide(to).c_str(), MOVEFILE_REPLACE_EXISTING));
}

int exchange(const char*, const char*) noexcept { return ENOSYS; }

int remove(const char* name) noexcept { return error_of(DeleteFileW(wide(name).c_str())); }

}  // namespace files
}  // namespace metal_marlin

#include "checkpoints/convert/output_file.h"

#include <cerrno>
#include <utility>

#include "base/system.h"

namespace metal_marlin {
namespace {

constexpr int kTemporaryNames = 1000;  // temporary names that are tried

/// The current folder has a name, too.
std::string named(const std::string& folder) { return folder.empty() ? "." : folder; }

/// Whether the error means that the disk or system does not have the call at all. Linux returns
/// EPERM for links on a disk without links.
bool is_no_such_call(int number) {
  // NOLINTNEXTLINE(misc-redundant-expression): some systems give both names one number
  const bool not_supported = number == ENOTSUP || number == EOPNOTSUPP;
  return not_supported || number == ENOSYS || number == EINVAL || number == EPERM;
}

constexpr const char* kCannotName = "cannot give the file its name";

}  // namespace

Result<bool> is_taken(const std::string& path) {
  files::Facts found;
  if (const int error = files::examine_name(path, found); error != 0)
    return error == ENOENT ? Result<bool>(false) : file_error(path, "cannot examine", error);
  if (found.kind == files::Kind::regular) return true;
  if (found.is_folder()) return file_error(path, "expected a new name or a regular file", EISDIR);
  const char* what = "device or socket";
  if (found.kind == files::Kind::link) what = "symbolic link";
  if (found.kind == files::Kind::pipe) what = "pipe";
  return Status::error(MARLIN_E_FILE, "%.120s: expected a new name or a regular file, found a %s",
                       path.c_str(), what)
      .with_native(EINVAL);
}

Status OutputFile::error(const char* what, int number) const {
  return file_error(path_, what, number);
}

Result<OutputFile> OutputFile::create(const std::string& path, uint64_t bytes, NameChanges& names) {
  OutputFile file;
  file.path_ = path;
  file.names_ = &names;
  file.file_ = files::File(names.open_nameless(named(files::folder_of(path)).c_str()));
  if (file.file_.is_open() && file.file_.link_path().empty()) file.file_ = {};
  if (!file.file_.is_open()) MARLIN_RETURN_IF_ERROR(file.claim_temporary_name(true));
  if (const int number = file.file_.reserve(bytes); number != 0)
    return file.error("cannot take room for the file", number);
  return file;
}

/// Creates the file under a free temporary name, or gives this name to the existing file.
Status OutputFile::claim_temporary_name(bool create) {
  for (int i = 0; i < kTemporaryNames; ++i) {
    std::string name =
        path_ + ".part-" + std::to_string(system::process_id()) + "-" + std::to_string(i);
    const int number =
        create ? file_.create(name) : names_->link(file_.link_path().c_str(), name.c_str());
    if (number == EEXIST) continue;
    if (number != 0) return error(create ? "cannot create" : "cannot give the file a name", number);
    temporary_ = std::move(name);
    return {};
  }
  return error("cannot find a free temporary name", EEXIST);
}

OutputFile::~OutputFile() {
  undo();
  file_ = {};
  if (!temporary_.empty()) (void)names_->remove(temporary_.c_str());
}

void OutputFile::swap(OutputFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(backup_, other.backup_);
  std::swap(names_, other.names_);
  std::swap(name_, other.name_);
  std::swap(file_, other.file_);
}

Status OutputFile::write(uint64_t offset, std::span<const std::byte> bytes) const {
  const int number = file_.write(offset, bytes);
  return number == 0 ? Status() : error("cannot write", number);
}

Status OutputFile::sync() const {
  const int number = file_.sync();
  return number == 0 ? Status() : error("cannot write", number);
}

/// Does the work that must precede the first change of a name: a file that replaces another needs a
/// name that it can swap.
Status OutputFile::prepare(bool replace) {
  MARLIN_ASSIGN(const bool taken, is_taken(path_));
  if (!taken) return {};
  if (!replace) return error(kCannotName, EEXIST);
  return temporary_.empty() ? claim_temporary_name(false) : Status();
}

Status OutputFile::publish(bool replace) {
  MARLIN_ASSIGN(const bool taken, is_taken(path_));
  return replace && taken && !temporary_.empty() ? replace_old() : give_name();
}

/// A link fails if the name is taken. Only on a disk without links, the check may be outdated.
Status OutputFile::give_name() {
  const std::string from = temporary_.empty() ? file_.link_path() : temporary_;
  int number = names_->link(from.c_str(), path_.c_str());
  if (number != 0 && is_no_such_call(number) && !temporary_.empty()) {
    number = files::exists(path_) ? EEXIST : names_->rename(temporary_.c_str(), path_.c_str());
    if (number == 0) temporary_.clear();
  }
  if (number != 0) return error(kCannotName, number);
  name_ = Name::given;
  return {};
}

Status OutputFile::replace_old() {
  const int number = names_->exchange(temporary_.c_str(), path_.c_str());
  if (number != 0)
    return is_no_such_call(number) ? replace_with_backup() : error(kCannotName, number);
  name_ = Name::swapped;
  return {};
}

/// For disks on which names cannot be swapped. The old file gets a second name or, on a disk
/// without links, another name.
Status OutputFile::replace_with_backup() {
  backup_ = temporary_ + ".old";
  int number = names_->link(path_.c_str(), backup_.c_str());
  const bool moved = number != 0 && is_no_such_call(number);
  if (moved) number = names_->rename(path_.c_str(), backup_.c_str());
  if (number != 0) return error("cannot keep the old file", number);
  number = names_->rename(temporary_.c_str(), path_.c_str());
  if (number != 0) {
    (void)(moved ? names_->rename(backup_.c_str(), path_.c_str())
                 : names_->remove(backup_.c_str()));
    return error(kCannotName, number);
  }
  temporary_.clear();
  name_ = Name::backed_up;
  return {};
}

/// An old file that cannot get its name back keeps its other name.
void OutputFile::undo() noexcept {
  if (name_ == Name::given) (void)names_->remove(path_.c_str());
  if (name_ == Name::backed_up) (void)names_->rename(backup_.c_str(), path_.c_str());
  if (name_ == Name::swapped && names_->exchange(temporary_.c_str(), path_.c_str()) != 0) {
    (void)names_->rename(temporary_.c_str(), path_.c_str());
    temporary_.clear();
  }
  name_ = Name::unchanged;
}

void OutputFile::keep() noexcept {
  if (name_ == Name::backed_up) (void)names_->remove(backup_.c_str());
  name_ = Name::unchanged;  // a swapped file's temporary_ is the old one's, which the destructor
                            // removes
}

Status publish_all(std::span<OutputFile> files, bool replace) {
  Status status;
  for (OutputFile& file : files) {
    if (status.ok()) status = file.prepare(replace);
  }
  for (OutputFile& file : files) {
    if (status.ok()) status = file.publish(replace);
  }
  for (OutputFile& file : files) status.ok() ? file.keep() : file.undo();
  return status;
}

void sync_folder(const std::string& folder) { files::sync_folder(named(folder)); }

}  // namespace metal_marlin

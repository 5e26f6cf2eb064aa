package poseidon

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/files"
)

// A file is an entry in the format of ls -l.
type file struct {
	Name             string `json:"name"`
	EntryType        string `json:"entryType"` // the letter of ls
	LinkTarget       string `json:"linkTarget,omitempty"`
	Size             int64  `json:"size"`
	ModificationTime int64  `json:"modificationTime"` // Unix seconds
	Permissions      string `json:"permissions"`
	Owner            string `json:"owner"`
	Group            string `json:"group"`
}

// Modes of copied files and directories, which belong to root. In the directories, every user may
// write, and delete only its own files.
const (
	fileMode = 0o744
	sticky   = 0o1777
)

// at resolves p against the directory in which commands run. The engine would resolve it against
// the workspace.
func at(runner runtime.Runner, p string) string {
	dir := runner.Environment.Pin.WorkingDirectory
	if path.IsAbs(p) || dir == "" || dir == runtime.Workspace {
		return p
	}
	return path.Join(dir, p)
}

// files lists a directory as ls -l or ls -lR does, without hidden files. For a file it lists only
// that.
func (a *api) files(w http.ResponseWriter, r *http.Request) error {
	runner, err := a.runner(r)
	if err != nil {
		return err
	}
	dir := r.URL.Query().Get("path")
	recursive, err := strconv.ParseBool(r.URL.Query().Get("recursive"))
	if err != nil {
		recursive = true
	}
	if dir == "" {
		dir = "./"
	}
	prefix := ""
	if recursive {
		prefix = strings.TrimRight(dir, "/") + "/"
	}
	list := []file{}
	entries, err := a.Engine.Files.List(r.Context(), runner.ID, at(runner, dir), recursive)
	if runtime.CodeOf(err) == runtime.CodeFileError {
		entry, found, statErr := a.Engine.Files.Get(r.Context(), runner.ID, at(runner, dir), false)
		if statErr != nil || !found || entry.Type == runtime.FileDirectory {
			return err
		}
		list, entries, err = append(list, listed(dir, entry)), nil, nil
	}
	if err != nil {
		return noFile(err)
	}
	for _, entry := range entries {
		if !hidden(entry.Path) {
			list = append(list, listed(prefix+entry.Path, entry))
		}
	}
	answer(w, http.StatusOK, map[string]any{"files": list})
	return nil
}

// noFile converts the error for a file that can't be read. An invalid path gets the same answer as
// a missing file, because CodeOcean destroys the runner after a 400.
func noFile(err error) error {
	if runtime.CodeOf(err) == runtime.CodeInvalidInput {
		return status{http.StatusFailedDependency, message(err)}
	}
	return err
}

// hidden reports whether ls leaves out a path.
func hidden(p string) bool { return strings.HasPrefix(p, ".") || strings.Contains(p, "/.") }

// listed returns CodeOcean's view of a file.
func listed(name string, entry runtime.File) file {
	types := map[runtime.FileType]string{runtime.FileRegular: "-", runtime.FileDirectory: "d", runtime.FileLink: "l"}
	kind, ok := types[entry.Type]
	if !ok {
		kind = "p" // or another special file without content
	}
	return file{
		Name: name, EntryType: kind, LinkTarget: entry.LinkTarget, Size: entry.Size, ModificationTime: entry.ModifiedAt.Unix(),
		Permissions: permissions(entry.Mode), Owner: entry.Owner, Group: entry.Group,
	}
}

// permissions returns a mode in the format of ls: "rwxr-xr-x", with s, S, t and T.
func permissions(mode uint32) string {
	text := []byte("rwxrwxrwx")
	for i := range text {
		if mode&(1<<(8-i)) == 0 {
			text[i] = '-'
		}
	}
	for i, special := range []struct {
		bit   uint32
		at    int
		marks string
	}{{0o4000, 2, "Ss"}, {0o2000, 5, "Ss"}, {0o1000, 8, "Tt"}} {
		if mode&special.bit != 0 {
			text[special.at] = special.marks[mode>>(6-3*i)&1]
		}
	}
	return string(text)
}

// updateFiles deletes files, then writes files.
func (a *api) updateFiles(w http.ResponseWriter, r *http.Request) error {
	var asked struct {
		Delete []string `json:"delete"`
		Copy   []struct {
			Path    string `json:"path"`
			Content []byte `json:"content"` // base64
		} `json:"copy"`
	}
	if err := a.read(w, r, &asked); err != nil {
		return err
	}
	runner, err := a.runner(r)
	if err != nil {
		return err
	}
	var empty, remove []string
	for _, p := range asked.Delete {
		if emptied(runner, p) {
			empty = append(empty, at(runner, "."))
		} else {
			remove = append(remove, at(runner, p))
		}
	}
	write := make([]runtime.FileWrite, len(asked.Copy))
	for i, c := range asked.Copy {
		write[i] = runtime.FileWrite{Path: at(runner, c.Path), Data: c.Content, Mode: fileMode}
		// A path with a slash at its end is a directory.
		if strings.HasSuffix(c.Path, "/") {
			write[i] = runtime.FileWrite{Path: at(runner, c.Path), Directory: true, Mode: sticky}
		}
	}
	err = a.update(r.Context(), runner.ID, empty, remove, write)
	if wrong, is := errors.AsType[*runtime.Error](err); is && (wrong.Code == runtime.CodeFileError || wrong.Code == runtime.CodeInvalidInput && strings.HasPrefix(wrong.Field, "copy.")) {
		err = a.updateParts(r.Context(), runner.ID, empty, remove, write)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// update deletes files, then writes files. If a path is impossible, it changes nothing. It protects
// the files if the runner can; if not, the server's health says so.
func (a *api) update(ctx context.Context, id runtime.RunnerID, empty, remove []string, write []runtime.FileWrite) error {
	update := files.Update{Empty: empty, Delete: remove, Write: write, Protected: true}
	updated, err := a.Engine.Files.Update(ctx, id, "copy", update)
	if refused, is := errors.AsType[*runtime.Error](err); is && refused.Field == "protected" {
		update.Protected = false
		updated, err = a.Engine.Files.Update(ctx, id, "copy", update)
	}
	if err == nil && len(updated.Failed) > 0 {
		failed := updated.Failed[0]
		err = runtime.Errorf(runtime.CodeStorageFull, "%s can't be written: %s", failed.Path, failed.Message)
	}
	return err
}

// updateParts does the same, and skips impossible paths, as the tar of Poseidon does. Its error is the
// first one, with status 500.
func (a *api) updateParts(ctx context.Context, id runtime.RunnerID, empty, remove []string, write []runtime.FileWrite) error {
	if len(empty) > 0 {
		if err := a.update(ctx, id, empty, nil, nil); err != nil {
			return err
		}
	}
	n := len(remove)
	return inParts(n+len(write), func(from, to int) error {
		err := a.update(ctx, id, nil, remove[min(from, n):min(to, n)], write[max(from-n, 0):max(to-n, 0)])
		if code := runtime.CodeOf(err); to-from > 1 || code != runtime.CodeFileError && code != runtime.CodeInvalidInput {
			return err
		}
		var path string
		if from < n {
			path = remove[from]
		} else {
			path = write[from-n].Path
		}
		return runtime.Errorf(runtime.CodeStorageFull, "%.200s: %s", path, runtime.MessageOf(err))
	})
}

// maxParts bounds the updates of one request. Each impossible path among 10,000 takes up to 29.
const maxParts = 1000

// inParts updates n files. It halves a part with an impossible path, and updates both halves. The
// error is STORAGE_FULL and the first one, unless another error makes the rest useless.
func inParts(n int, update func(from, to int) error) error {
	left := maxParts
	var part func(from, to int) error
	part = func(from, to int) error {
		if left--; left < 0 {
			return runtime.Errorf(runtime.CodeStorageFull, "too many paths are impossible: not all others were updated")
		}
		err := update(from, to)
		if code := runtime.CodeOf(err); to-from < 2 || code != runtime.CodeFileError && code != runtime.CodeInvalidInput {
			return err
		}
		middle := (from + to) / 2
		first := part(from, middle)
		if first != nil && runtime.CodeOf(first) != runtime.CodeStorageFull {
			return first
		}
		if second := part(middle, to); first == nil || second != nil && runtime.CodeOf(second) != runtime.CodeStorageFull {
			return second
		}
		return first
	}
	return part(0, n)
}

// emptied reports whether a path to delete means all files in the working directory: it is ./*, as
// CodeOcean sends it, or the directory itself. In every other path * is a character of a name.
func emptied(runner runtime.Runner, p string) bool {
	dir := cmp.Or(runner.Environment.Pin.WorkingDirectory, runtime.Workspace)
	return p == "./*" || p != "" && (path.Clean(p) == "." || path.Clean(p) == dir)
}

// attachment returns the header Content-Disposition with a file's path, as Poseidon sends it.
func attachment(p string) string {
	if plain := strings.Trim(p, printable) == ""; plain {
		return `attachment; filename="` + p + `"`
	}
	return cmp.Or(mime.FormatMediaType("attachment", map[string]string{"filename": strings.ToValidUTF8(p, "\uFFFD")}), "attachment")
}

// printable are the characters that need no escape in a header's quoted text.
const printable = ` !#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_abcdefghijklmnopqrstuvwxyz{|}~` + "`"

func (a *api) download(w http.ResponseWriter, r *http.Request) error {
	runner, err := a.runner(r)
	if err != nil {
		return err
	}
	info, stream, err := a.Engine.Files.OpenFile(r.Context(), runner.ID, at(runner, r.URL.Query().Get("path")), 0)
	if err != nil {
		return noFile(err)
	}
	defer stream.Close()
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Disposition", attachment(r.URL.Query().Get("path")))
	header.Set("Content-Length", strconv.FormatInt(info.Size, 10))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("Cache-Control", "no-store")
	if n, err := io.Copy(w, io.LimitReader(stream, info.Size)); err != nil || n < info.Size {
		panic(http.ErrAbortHandler) // break the connection: otherwise half of the file would look complete
	}
	return nil
}

package mcp

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/files"
)

// Limits of files in results.
const (
	maxMade       = 32 << 10 // bytes of a file that a program created, as text or base64
	maxMadeInAll  = 64 << 10
	maxImage      = 1 << 20 // bytes of an image, which clients display
	maxImages     = 4
	maxMadeFiles  = 100
	maxListed     = 1000
	maxReadFile   = 1 << 20
	defaultRead   = 64 << 10
	maxReadOutput = 256 << 10
)

// A madeFile is a file that a program created or changed.
type madeFile struct {
	Path   string `json:"path" jsonschema:"relative to /workspace"`
	Size   int64  `json:"size" jsonschema:"bytes"`
	Text   string `json:"text,omitempty" jsonschema:"its content, if it is text and not too large"`
	Base64 string `json:"base64,omitempty" jsonschema:"its content, if it isn't text and not too large"`
	Note   string `json:"note,omitempty" jsonschema:"why its content is missing, or where it is"`
}

// body returns what the text of a result has after the file's name and size.
func (f madeFile) body() string {
	switch {
	case f.Base64 != "":
		return ": " + inBase64
	case f.Note != "":
		return ": " + f.Note
	case f.Text != "":
		return ":\n" + f.Text
	}
	return ""
}

// inBase64 is the text in place of content in base64.
const inBase64 = "it isn't UTF-8; the structured content has it as base64"

// A version identifies the content of a file: a change gives it another version.
type version struct {
	size int64
	at   time.Time
}

// snapshot returns the versions of the files in the workspace, by path.
func (c *call) snapshot(id runtime.RunnerID) (map[string]version, error) {
	ctx, done := context.WithCancel(c.ctx) // the list's memory is free when it ends
	defer done()
	all, err := c.api.services.Engine.Files.List(ctx, id, "", true)
	if err != nil {
		return nil, err
	}
	seen := map[string]version{}
	for _, f := range all {
		if f.Type == runtime.FileRegular {
			seen[f.Path] = version{f.Size, f.ModifiedAt}
		}
	}
	return seen, nil
}

// collect adds the files that a program created or changed to its result. It returns the images
// among them.
func (c *call) collect(id runtime.RunnerID, before map[string]version, out *ran) (images []*sdk.ImageContent) {
	after, err := c.snapshot(id)
	if err != nil {
		out.FilesNote = "the files that it created are unknown: " + runtime.MessageOf(err)
		return nil
	}
	var paths []string
	for path, now := range after {
		if was, there := before[path]; !there || was.size != now.size || !was.at.Equal(now.at) {
			paths = append(paths, path)
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(cmp.Compare(byTools(a), byTools(b)), cmp.Compare(a, b))
	})
	if len(paths) > maxMadeFiles {
		out.FilesNote = fmt.Sprintf("it made %d files; these are the first %d", len(paths), maxMadeFiles)
		paths = paths[:maxMadeFiles]
	}
	// room is left for content as text or base64. Images don't count.
	room := maxMadeInAll
	for _, path := range paths {
		made := madeFile{Path: path, Size: after[path].size}
		image := isImage(path) && made.Size <= maxImage && len(images) < maxImages
		switch {
		case made.Size == 0:
		case !image && (made.Size > maxMade || made.Size > int64(room)):
			made.Note = "its content is left out, because it is large: run the program in a session (open_session, execute), and use read_file"
		default:
			data, _, err := c.read(id, path, 0, maxImage)
			switch kind := http.DetectContentType(data); {
			case err != nil:
				made.Note = "the file can't be read: " + runtime.MessageOf(err)
			case image && strings.HasPrefix(kind, "image/"):
				images = append(images, &sdk.ImageContent{Data: data, MIMEType: kind})
				made.Note = "it is an image of this answer"
			case len(data) > room:
				c.request.give(int64(len(data)))
				made.Note = "its content is left out, because it is large"
			default:
				room -= len(data)
				made.Text, made.Base64 = textOf(data)
			}
		}
		out.Files = append(out.Files, made)
	}
	return images
}

// byTools returns 1 for a path that languages and their tools make, such as caches and packages, and 0 for
// the program's own.
func byTools(path string) int {
	for name := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(name, ".") || name == "__pycache__" || name == "node_modules" {
			return 1
		}
	}
	return 0
}

func isImage(path string) bool {
	return slices.ContainsFunc([]string{".png", ".jpg", ".jpeg", ".gif", ".webp"}, func(end string) bool { return strings.HasSuffix(strings.ToLower(path), end) })
}

// read returns at most that many bytes of a file from an offset on, and the file's size. The bytes
// take memory of the call; the caller frees what it drops.
func (c *call) read(id runtime.RunnerID, path string, offset int64, most int) (data []byte, size int64, err error) {
	info, content, err := c.api.services.Engine.Files.OpenFile(c.ctx, id, path, offset)
	if err != nil {
		return nil, 0, err
	}
	defer content.Close()
	data, err = c.request.read(content, min(int64(most), info.Size-offset))
	return data, info.Size, err
}

// A writeInput has the arguments of write_files.
type writeInput struct {
	Session string   `json:"session" jsonschema:"from open_session"`
	Files   []file   `json:"files,omitempty" jsonschema:"files to write"`
	Empty   []string `json:"empty,omitempty" jsonschema:"directories to empty first; . is /workspace"`
	Delete  []string `json:"delete,omitempty" jsonschema:"paths to delete before writing, with everything below"`
}

// A wrote is the result of write_files.
type wrote struct {
	Written int `json:"written" jsonschema:"number of files"`
	Deleted int `json:"deleted" jsonschema:"number of files and directories"`
}

// writeFiles serves write_files. If a file can't be written, the error names it, and the others
// stay written.
func writeFiles(c *call, in writeInput) (out wrote, reply answer, err error) {
	runner, err := c.sessionRunner(in.Session)
	if err != nil {
		return out, reply, err
	}
	written, err := write(in.Files)
	if err != nil {
		return out, reply, err
	}
	if len(written)+len(in.Delete)+len(in.Empty) == 0 {
		return out, reply, runtime.Invalid("files", "files to write or paths to delete are required")
	}
	updated, err := c.api.services.Engine.Files.Update(c.ctx, runner.ID, "files", files.Update{Empty: in.Empty, Delete: in.Delete, Write: written})
	if err == nil && len(updated.Failed) > 0 {
		err = runtime.Errorf(runtime.CodeStorageFull, "%s: %s; %d other files were written", updated.Failed[0].Path, updated.Failed[0].Message, len(updated.Written))
	}
	out = wrote{len(updated.Written), len(updated.Deleted)}
	reply.text = fmt.Sprintf("%d written, %d deleted", out.Written, out.Deleted)
	return out, reply, err
}

// A readInput has the arguments of read_file.
type readInput struct {
	Session  string `json:"session" jsonschema:"from open_session"`
	Path     string `json:"path" jsonschema:"relative to /workspace, or absolute"`
	Offset   int64  `json:"offset,omitempty" jsonschema:"bytes to skip"`
	MaxBytes *int   `json:"maxBytes,omitempty" jsonschema:"maximum number of bytes, 1 to 1048576; default 65536"`
}

// A content is the result of read_file.
type content struct {
	Size       int64  `json:"size" jsonschema:"of the whole file, in bytes"`
	Text       string `json:"text,omitempty" jsonschema:"the content, if it is UTF-8"`
	Base64     string `json:"base64,omitempty" jsonschema:"the content, if it isn't UTF-8; an image is in the result instead"`
	NextOffset *int64 `json:"nextOffset,omitempty" jsonschema:"offset of the rest; missing at the end"`
}

// readFile serves read_file. It returns an image only if the whole file fits in one result.
func readFile(c *call, in readInput) (out content, reply answer, err error) {
	runner, err := c.sessionRunner(in.Session)
	if err != nil {
		return out, reply, err
	}
	most, err := bytesArgument(in.MaxBytes, defaultRead, maxReadFile)
	if err != nil {
		return out, reply, err
	}
	data, size, err := c.read(runner.ID, in.Path, in.Offset, most)
	if err != nil {
		return out, reply, err
	}
	if kind := http.DetectContentType(data); isImage(in.Path) && in.Offset == 0 && int64(len(data)) == size && strings.HasPrefix(kind, "image/") {
		reply.images = []*sdk.ImageContent{{Data: data, MIMEType: kind}}
	}
	if end := in.Offset + int64(len(data)); end < size {
		if whole := len(data) - runtime.Unfinished(data); whole > 0 {
			data, end = data[:whole], in.Offset+int64(whole)
		}
		out.NextOffset = &end
	}
	out.Size = size
	if len(reply.images) > 0 {
		reply.text = fmt.Sprintf("an image of %d bytes", size)
		return out, reply, nil
	}
	out.Text, out.Base64 = textOf(data)
	reply.text = out.Text
	if out.Base64 != "" {
		reply.text = inBase64
	}
	if out.NextOffset != nil {
		reply.text += fmt.Sprintf("\n[… %d of %d bytes; call read_file with offset %d for the rest …]", len(data), size, *out.NextOffset)
	}
	return out, reply, nil
}

// bytesArgument returns the number of bytes that an agent requested.
func bytesArgument(given *int, otherwise, most int) (int, error) {
	if given == nil {
		return otherwise, nil
	}
	return *given, runtime.Between("maxBytes", int64(*given), 1, int64(most), "bytes")
}

// A listInput has the arguments of list_files.
type listInput struct {
	Session   string `json:"session" jsonschema:"from open_session"`
	Path      string `json:"path,omitempty" jsonschema:"a directory; default /workspace"`
	Recursive bool   `json:"recursive,omitempty" jsonschema:"whether to list the entries of directories, too"`
}

// An entry is a file or directory of a listing.
type entry struct {
	Path string           `json:"path"`
	Type runtime.FileType `json:"type" jsonschema:"FILE, DIRECTORY, LINK or OTHER"`
	Size int64            `json:"size" jsonschema:"bytes"`
}

// A listing is the result of list_files.
type listing struct {
	Files []entry `json:"files"`
	Note  string  `json:"note,omitempty" jsonschema:"what is missing from the list"`
}

// listFiles serves list_files. It returns at most maxListed entries.
func listFiles(c *call, in listInput) (out listing, reply answer, err error) {
	runner, err := c.sessionRunner(in.Session)
	if err != nil {
		return out, reply, err
	}
	all, err := c.api.services.Engine.Files.List(c.ctx, runner.ID, in.Path, in.Recursive)
	if err != nil {
		return out, reply, err
	}
	if len(all) > maxListed {
		out.Note = fmt.Sprintf("these are the first %d of %d entries: list a directory below", maxListed, len(all))
		all = all[:maxListed]
	}
	var b strings.Builder
	out.Files = []entry{}
	for _, f := range all {
		e := entry{f.Path, f.Type, f.Size}
		out.Files = append(out.Files, e)
		fmt.Fprintf(&b, "%-9s %10d %s\n", e.Type, e.Size, e.Path)
	}
	if len(all) == 0 {
		b.WriteString("it is empty\n")
	}
	reply.text = b.String() + out.Note
	return out, reply, nil
}

// filing returns the tools for a session's files.
func filing() []tool {
	return []tool{
		define("write_files", "Write files", "Writes files into a session's runner, or deletes files. It replaces existing files.",
			sdk.ToolAnnotations{DestructiveHint: new(true), IdempotentHint: true}, nil, writeFiles),
		define("read_file", "Read a file", "Reads a file of a session's runner from an offset on. The result is text, base64 if the file isn't UTF-8, or an image.",
			sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true}, func(s *jsonschema.Schema) {
				between(s, "maxBytes", 1, maxReadFile)
				s.Properties["offset"].Minimum = new(0.0)
			}, readFile),
		define("list_files", "List files", "Lists a directory of a session's runner.",
			sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true}, nil, listFiles),
	}
}

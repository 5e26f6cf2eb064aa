package serve

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/rockpool/rockpool/agent"
)

// transferTimeout bounds each read and write of a transfer, which could
// otherwise hold its slot for as long as its client likes.
const transferTimeout = 60 * time.Second

// transferPatience is how long a transfer waits for a slot. Small ones end
// within milliseconds; large ones of slow clients may hold all slots for long.
const transferPatience = 10 * time.Second

// errStream is in the chain of the errors of a transfer's own stream, which
// can't be sent to its client.
var errStream = errors.New("stream of a transfer")

type transfer struct {
	server *Server
	conn   net.Conn
	frames *agent.FrameReader
	out    []byte // frames to write; at first the response
	opened bool   // the response was written, or is about to be: errors come as KindEnd
}

// run carries out the request. An error that it returns hasn't been sent to the client.
func (t *transfer) run(request agent.Request) error {
	switch {
	case request.List != nil:
		return t.end(t.server.executor.List(*request.List, t.file))
	case request.Read != nil:
		return t.end(t.read(*request.Read))
	case request.Move != nil:
		info, err := t.server.executor.Move(*request.Move)
		if err == nil {
			err = t.file(info)
		}
		return t.end(err)
	case request.Search != nil:
		return t.search(*request.Search)
	default:
		return t.update(*request.Update)
	}
}

func (t *transfer) file(info agent.FileInfo) (err error) {
	t.opened = true
	if t.out, err = agent.AppendJSON(t.out, agent.KindFile, info); err != nil {
		return err
	}
	if len(t.out) >= agent.MaxData {
		return t.flush()
	}
	return nil
}

// end finishes a list or a read. An error that came before anything was sent
// is returned, so that it becomes the response.
func (t *transfer) end(err error) error {
	if err != nil && (!t.opened || errors.Is(err, errStream)) {
		return err
	}
	if err == nil {
		t.out = agent.AppendFrame(t.out, agent.KindEnd, nil)
		return t.flush()
	}
	response := agent.Response{Protocol: agent.Protocol}
	if !errors.As(t.server.visible(err), &response.Error) {
		return err
	}
	if t.out, err = agent.AppendJSON(t.out, agent.KindEnd, response); err != nil {
		return err
	}
	return t.flush()
}

// flush writes the pending frames. Its error has errStream in its chain.
func (t *transfer) flush() error {
	_ = t.conn.SetWriteDeadline(time.Now().Add(transferTimeout))
	_, err := t.conn.Write(t.out)
	t.out = t.out[:0]
	if err != nil {
		return fmt.Errorf("%w: %w", errStream, err)
	}
	return nil
}

// read adds a file's description and, unless only that was requested, its bytes.
func (t *transfer) read(read agent.ReadFile) error {
	path := read.Path
	if read.InfoOnly {
		info, err := t.server.executor.Stat(path, read.Follow)
		if err != nil {
			return err
		}
		return t.file(info)
	}
	info, content, err := t.server.executor.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	if read.Offset < 0 || read.Offset > info.Size {
		return &agent.Error{Code: agent.ErrInvalid, Path: path, Message: fmt.Sprintf("has %d bytes, so it can't be read from offset %d", info.Size, read.Offset)}
	}
	if _, err := content.Seek(read.Offset, io.SeekStart); err != nil {
		return err
	}
	if err := t.file(info); err != nil {
		return err
	}
	return t.send(path, content, info.Size-read.Offset)
}

func (t *transfer) send(path string, content io.Reader, size int64) error {
	buf := make([]byte, min(size, agent.MaxData))
	for left := size; left > 0; {
		n, err := io.ReadFull(content, buf[:min(left, int64(len(buf)))])
		if n > 0 {
			t.out = agent.AppendFrame(t.out, agent.KindData, buf[:n])
			left -= int64(n)
			if err := t.flush(); err != nil {
				return err
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return &agent.Error{Code: agent.ErrInvalid, Path: path, Message: "the file became shorter while it was read"}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// update checks the whole request, answers, and then receives the contents. A content that fails
// after the answer ends the stream.
func (t *transfer) update(update agent.Update) error {
	for i, w := range update.Write {
		if w.Size < -1 || w.Directory && w.Size != 0 || w.Mode > 0o7777 {
			return &agent.Error{Code: agent.ErrInvalid, Path: w.Path, Field: "write", Index: i, Message: "has an invalid size or mode"}
		}
	}
	apply, err := t.server.executor.Update(update)
	if err != nil {
		return err
	}
	if err := t.flush(); err != nil {
		return err
	}
	in := &contentReader{t: t, files: update.Write}
	updated, err := apply(in.content)
	if err == nil {
		err = in.skip(len(update.Write))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errStream, err)
	}
	if t.out, err = agent.AppendJSON(t.out, agent.KindUpdated, updated); err != nil {
		return err
	}
	return t.flush()
}

// contentReader are the contents of an update's files, one after the other.
type contentReader struct {
	t     *transfer
	files []agent.Write
	next  int    // the file that is due
	left  int64  // bytes of the one before it that were not taken; -1 until a KindEnd
	data  []byte // of the last frame
}

// content returns the bytes of files[i]. Those before it that weren't read are
// skipped.
func (in *contentReader) content(i int) io.Reader {
	if err := in.skip(i); err != nil {
		return &failedReader{err}
	}
	in.begin()
	return in
}

// begin starts the next file. A directory has no content.
func (in *contentReader) begin() {
	if !in.files[in.next].Directory {
		in.left = in.files[in.next].Size
	}
	in.next++
}

// skip discards contents, so that files[i] is next.
func (in *contentReader) skip(i int) error {
	for {
		if _, err := io.Copy(io.Discard, in); err != nil {
			return err
		}
		if in.next >= i {
			return nil
		}
		in.begin()
	}
}

// Read implements io.Reader for the current file.
func (in *contentReader) Read(p []byte) (int, error) {
	if in.left == 0 {
		return 0, io.EOF
	}
	if len(in.data) == 0 {
		_ = in.t.conn.SetReadDeadline(time.Now().Add(transferTimeout))
		kind, body, err := in.t.frames.Next()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		if kind == agent.KindEnd && in.left < 0 && len(body) == 0 {
			in.left = 0
			return 0, io.EOF
		}
		if kind != agent.KindData || in.left >= 0 && int64(len(body)) > in.left {
			return 0, fmt.Errorf("%w: unexpected frame of kind %d and %d bytes in a file", agent.ErrProtocol, kind, len(body))
		}
		in.data = body
	}
	n := copy(p, in.data)
	in.data = in.data[n:]
	if in.left >= 0 {
		in.left -= int64(n)
	}
	return n, nil
}

type failedReader struct{ err error }

func (r *failedReader) Read([]byte) (int, error) { return 0, r.err }

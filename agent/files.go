package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"
	"unicode/utf8"
)

// ListFiles calls each with the entries of a directory, in the order in which
// the agent sends them: by path, element by element. An error of each ends the
// list and is returned. Ctx bounds the whole. It closes conn.
func ListFiles(ctx context.Context, conn net.Conn, list ListDir, each func(FileInfo) error) error {
	if err := checkPath(conn, list.Path); err != nil {
		return err
	}
	x, _, err := open(ctx, conn, Request{List: &list})
	if err != nil {
		return err
	}
	for {
		info, end, err := x.nextFile()
		if err != nil {
			return x.fail(err)
		}
		if end {
			x.close()
			return nil
		}
		if err := each(info); err != nil {
			x.close()
			return err
		}
	}
}

// nextFile reads a KindFile or KindEnd frame.
func (x *exchange) nextFile() (info FileInfo, end bool, err error) {
	kind, body, err := x.next()
	if err != nil {
		return FileInfo{}, false, err
	}
	switch kind {
	case KindFile:
		if err := ParseJSON(body, &info); err != nil {
			return FileInfo{}, false, err
		}
		return info, false, info.check()
	case KindEnd:
		return FileInfo{}, true, parseEnd(body)
	default:
		return FileInfo{}, false, fmt.Errorf("%w: kind %d in a transfer", ErrProtocol, kind)
	}
}

func (i FileInfo) check() error {
	if i.Size < 0 || i.Mode > 0o7777 {
		return fmt.Errorf("%w: file of %d bytes and mode %o", ErrProtocol, i.Size, i.Mode)
	}
	return nil
}

func parseEnd(body []byte) error {
	if len(body) == 0 {
		return nil
	}
	_, err := parseResponse(body)
	return err
}

// StatFile returns what an entry of any type is; a link is followed. The path
// may be any bytes. Ctx bounds the whole. It closes conn.
func StatFile(ctx context.Context, conn net.Conn, path string) (FileInfo, error) {
	x, info, err := openFile(ctx, conn, path, ReadFile{InfoOnly: true})
	if err != nil {
		return FileInfo{}, err
	}
	x.close()
	return info, nil
}

// OpenFile returns a regular file's description and its bytes from offset on.
// Reading ends with io.EOF after exactly FileInfo.Size bytes less the offset,
// and with another error if fewer came. The path may be any bytes. Ctx bounds
// the whole, reading too. Conn is closed with the reader, or on an error.
func OpenFile(ctx context.Context, conn net.Conn, path string, offset int64) (FileInfo, io.ReadCloser, error) {
	x, info, err := openFile(ctx, conn, path, ReadFile{Offset: offset})
	if err != nil {
		return FileInfo{}, nil, err
	}
	if offset < 0 || offset > info.Size {
		return FileInfo{}, nil, x.fail(fmt.Errorf("%w: bytes from %d on of a file of %d", ErrProtocol, offset, info.Size))
	}
	return info, &fileReader{x: x, left: info.Size - offset}, nil
}

func openFile(ctx context.Context, conn net.Conn, path string, read ReadFile) (*exchange, FileInfo, error) {
	if utf8.ValidString(path) {
		read.Path = path
	} else {
		read.Name = []byte(path) // JSON would change it on its way
	}
	return oneFile(ctx, conn, Request{Read: &read})
}

// oneFile sends a request, and reads the description that answers it.
func oneFile(ctx context.Context, conn net.Conn, request Request) (*exchange, FileInfo, error) {
	x, _, err := open(ctx, conn, request)
	if err != nil {
		return nil, FileInfo{}, err
	}
	info, end, err := x.nextFile()
	if err == nil && end {
		err = fmt.Errorf("%w: no file in the answer", ErrProtocol)
	}
	if err != nil {
		return nil, FileInfo{}, x.fail(err)
	}
	return x, info, nil
}

// MoveFile gives an entry another path, and returns what is there then. It replaces nothing. An
// [*Error] means that nothing was changed: ErrIncompatible that the agent is too old; after any
// other error nobody knows. Ctx bounds the whole. It closes conn.
func MoveFile(ctx context.Context, conn net.Conn, move Move) (FileInfo, error) {
	for field, path := range map[string]string{"from": move.From, "to": move.To} {
		if err := checkPath(conn, path); err != nil {
			return FileInfo{}, inUpdate(err, field, 0)
		}
	}
	x, info, err := oneFile(ctx, conn, Request{Move: &move})
	if err != nil {
		return FileInfo{}, err
	}
	x.close()
	return info, nil
}

// checkPath refuses a path that JSON would change on its way.
func checkPath(conn net.Conn, path string) error {
	if utf8.ValidString(path) {
		return nil
	}
	_ = conn.Close()
	return &Error{Code: ErrInvalid, Path: path, Message: "a path must be valid UTF-8"}
}

// A fileReader reads the KindData frames of one file.
type fileReader struct {
	x    *exchange
	left int64  // bytes that are still to come, data included
	data []byte // of the last frame
	err  error
}

func (r *fileReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 && r.err == nil {
		r.err = r.next()
	}
	if len(r.data) > 0 {
		n := copy(p, r.data)
		r.data = r.data[n:]
		return n, nil
	}
	return 0, r.err
}

func (r *fileReader) next() error {
	kind, body, err := r.x.next()
	if err != nil {
		return r.x.fail(err)
	}
	switch {
	case kind == KindData && int64(len(body)) <= r.left:
		r.left -= int64(len(body))
		r.data = body
		return nil
	case kind == KindEnd:
		if err := parseEnd(body); err != nil {
			return r.x.fail(err)
		}
		if r.left > 0 {
			return r.x.fail(fmt.Errorf("%w: file ended %d bytes early", ErrProtocol, r.left))
		}
		return io.EOF
	default:
		return r.x.fail(fmt.Errorf("%w: kind %d of %d bytes in a file", ErrProtocol, kind, len(body)))
	}
}

// Close may be called before the end, and again.
func (r *fileReader) Close() error {
	r.x.close()
	if r.err == nil {
		r.err, r.data = net.ErrClosed, nil
	}
	return nil
}

// UpdateFiles deletes and writes files. Content is called once for each file
// of update.Write that isn't a directory, in order, for a reader of exactly
// its Size bytes, or for a Size of -1 of any number. An [*Error] means that nothing was touched; after any other
// error nobody knows. Ctx bounds the whole. It closes conn.
func UpdateFiles(ctx context.Context, conn net.Conn, update Update, content func(i int) io.Reader) (Updated, error) {
	for i, path := range update.Delete {
		if err := checkPath(conn, path); err != nil {
			return Updated{}, inUpdate(err, "delete", i)
		}
	}
	for i, write := range update.Write {
		if err := checkPath(conn, write.Path); err != nil {
			return Updated{}, inUpdate(err, "write", i)
		}
	}
	x, _, err := open(ctx, conn, Request{Update: &update})
	if err != nil {
		return Updated{}, err
	}
	buffer := make([]byte, headerSize+MaxData)
	for i, write := range update.Write {
		if write.Directory || write.Size == 0 {
			continue
		}
		if err := x.send(buffer, content(i), write.Size); err != nil {
			return Updated{}, x.fail(err)
		}
	}
	body, err := x.expect(KindUpdated)
	if err != nil {
		return Updated{}, x.fail(err)
	}
	var updated Updated
	if err := ParseJSON(body, &updated); err != nil {
		return Updated{}, x.fail(err)
	}
	if updated.File != nil {
		if err := updated.File.check(); err != nil {
			return Updated{}, x.fail(err)
		}
	}
	for i := range updated.Failed {
		updated.Failed[i].Message = Shorten(updated.Failed[i].Message)
	}
	x.close()
	return updated, nil
}

func inUpdate(err error, field string, index int) error {
	var e *Error
	if errors.As(err, &e) {
		e.Field, e.Index = field, index
	}
	return err
}

// A ContentError is in the chain of an UpdateFiles error that says that a
// content could not be read, or ended early.
type ContentError struct{ Err error }

func (e *ContentError) Error() string { return "read content: " + e.Err.Error() }

func (e *ContentError) Unwrap() error { return e.Err }

// gatherTime is how long what has come of a slow content waits for the rest of
// its frame: the agent gives up a stream on which nothing comes.
const gatherTime = time.Second

// gather fills p, unless content is slow. An error comes with what was read
// before it, and not with a full p.
func gather(content io.Reader, p []byte) (n int, err error) {
	for began := time.Now(); n < len(p) && err == nil; {
		var more int
		more, err = content.Read(p[n:])
		if n += more; n > 0 && err == nil && time.Since(began) > gatherTime {
			break
		}
	}
	if n == len(p) {
		err = nil
	}
	return n, err
}

// send writes size bytes of content as KindData frames, or for -1 all of it
// and KindEnd.
func (x *exchange) send(buffer []byte, content io.Reader, size int64) error {
	left := size
	if size < 0 {
		left = math.MaxInt64
	}
	for left > 0 {
		n, err := gather(content, buffer[headerSize:headerSize+min(left, MaxData)])
		ended := err == io.EOF
		switch {
		case ended && size >= 0:
			return &ContentError{io.ErrUnexpectedEOF}
		case err != nil && !ended:
			return &ContentError{err}
		}
		if n > 0 {
			appendHeader(buffer[:0], KindData, n)
			if err := writeFrame(x.conn, buffer[:headerSize+n]); err != nil {
				return err
			}
		}
		if ended {
			return writeFrame(x.conn, AppendFrame(nil, KindEnd, nil))
		}
		left -= int64(n)
	}
	return nil
}

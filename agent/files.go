package agent

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"time"
)

// ListFiles calls each with the entries of a directory, each directory before the entries below it.
// An error of each ends the list and is returned. Ctx bounds the whole call. It closes conn.
func ListFiles(ctx context.Context, conn net.Conn, list ListDir, each func(FileInfo) error) error {
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

// nextFile reads a KindFile frame, or the KindEnd that ends a list.
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
		return FileInfo{}, false, fmt.Errorf("%w: unexpected frame of kind %d in a transfer", ErrProtocol, kind)
	}
}

// check returns ErrProtocol for a description that no agent may send.
func (i FileInfo) check() error {
	if i.Size < 0 || i.Mode > 0o7777 {
		return fmt.Errorf("%w: a file of %d bytes and mode %o", ErrProtocol, i.Size, i.Mode)
	}
	return nil
}

// parseEnd decodes the body of a KindEnd frame: empty, or the agent's error.
func parseEnd(body []byte) error {
	if len(body) == 0 {
		return nil
	}
	_, err := parseResponse(body)
	return err
}

// StatFile describes an entry of any type, or with follow the target of a link. Ctx bounds the whole
// call. It closes conn.
func StatFile(ctx context.Context, conn net.Conn, path string, follow bool) (FileInfo, error) {
	return describe(ctx, conn, Request{Read: &ReadFile{Path: path, InfoOnly: true, Follow: follow}})
}

// describe is oneFile for a request whose answer has no more than the description. It closes conn.
func describe(ctx context.Context, conn net.Conn, request Request) (FileInfo, error) {
	x, info, err := oneFile(ctx, conn, request)
	if err == nil {
		x.close()
	}
	return info, err
}

// OpenFile returns a regular file's description and a reader of its bytes from offset on. The
// reader returns io.EOF after exactly FileInfo.Size-offset bytes, and another error if the agent
// sent fewer. So a download is complete or fails. Ctx bounds the call and all reads. Conn is closed
// with the reader, or on an error.
func OpenFile(ctx context.Context, conn net.Conn, path string, offset int64) (FileInfo, io.ReadCloser, error) {
	x, info, err := oneFile(ctx, conn, Request{Read: &ReadFile{Path: path, Offset: offset}})
	if err != nil {
		return FileInfo{}, nil, err
	}
	if offset < 0 || offset > info.Size {
		return FileInfo{}, nil, x.fail(fmt.Errorf("%w: bytes from %d on of a file of %d bytes", ErrProtocol, offset, info.Size))
	}
	return info, &fileReader{x: x, left: info.Size - offset}, nil
}

// oneFile sends a request whose answer is one KindFile frame, and reads that.
func oneFile(ctx context.Context, conn net.Conn, request Request) (*exchange, FileInfo, error) {
	x, _, err := open(ctx, conn, request)
	if err != nil {
		return nil, FileInfo{}, err
	}
	info, end, err := x.nextFile()
	if err == nil && end {
		err = fmt.Errorf("%w: the answer describes no file", ErrProtocol)
	}
	if err != nil {
		return nil, FileInfo{}, x.fail(err)
	}
	return x, info, nil
}

// MoveFile moves an entry to another path and returns its new description. It never replaces an
// entry. An [*Error] means that nothing was changed. After any other error the result is unknown.
// Ctx bounds the whole call. It closes conn.
func MoveFile(ctx context.Context, conn net.Conn, move Move) (FileInfo, error) {
	return describe(ctx, conn, Request{Move: &move})
}

// A fileReader reads the KindData frames of one file. Like most readers, it is for one goroutine.
type fileReader struct {
	x    *exchange
	left int64  // bytes of the file that weren't read, including data
	data []byte // of the last frame
	err  error
}

// Read implements io.Reader. An error comes only after all bytes that arrived before it.
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

// next reads the next frame. Its body becomes data, which is valid until the frame after it.
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
			return r.x.fail(fmt.Errorf("%w: the file ended %d bytes early", ErrProtocol, r.left))
		}
		return io.EOF
	default:
		return r.x.fail(fmt.Errorf("%w: unexpected frame of kind %d and %d bytes in a file", ErrProtocol, kind, len(body)))
	}
}

// Close ends the transfer and closes its stream. It may be called before the end, and repeatedly.
func (r *fileReader) Close() error {
	r.x.close()
	if r.err == nil {
		r.err, r.data = net.ErrClosed, nil
	}
	return nil
}

// UpdateFiles deletes and writes files. It calls content once for each file of update.Write that
// isn't a directory, in order. The reader must return exactly Size bytes, or any number if Size is
// -1. An [*Error] means that no file was changed. After any other error the result is unknown. Ctx
// bounds the whole call. It closes conn.
func UpdateFiles(ctx context.Context, conn net.Conn, update Update, content func(i int) io.Reader) (Updated, error) {
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

// A ContentError is in the chain of an UpdateFiles error if a content's reader failed or ended
// early. It is the caller's failure, not the agent's.
type ContentError struct{ Err error }

func (e *ContentError) Error() string { return "read content: " + e.Err.Error() }

func (e *ContentError) Unwrap() error { return e.Err }

// gatherTime is how long send waits to fill a frame from a slow content. The agent gives up a
// stream after 60 s without a frame, so bytes that arrived must not wait longer.
const gatherTime = time.Second

// gather fills p, or as much of it as content returns within gatherTime. It returns an error
// together with the bytes before it, and never with a full p.
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

// send writes size bytes of content as KindData frames. If size is -1 it writes all of content,
// then KindEnd.
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

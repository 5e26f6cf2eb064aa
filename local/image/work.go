package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
)

// A server without the right to give files to other users uses a worker: a process that is root
// among the users of one range, and has no other rights. The two exchange packets. The first byte
// of a packet to the worker is its kind.
const (
	beginPacket = 'b' // a tree.Spec as JSON: make an image's root; answered
	dataPacket  = 'd' // a part of a layer
	endPacket   = 'e' // the end of a layer; answered
	lastPacket  = 'l' // prepare the root for runners; answered
	clearPacket = 'c' // delete the directory's contents; answered
)

const maxPacket = 64 << 10

type report struct {
	Disk  int64        `json:"disk"`           // bytes on the disk by now
	Done  bool         `json:"done,omitempty"` // the answer to the last packet, not only progress
	Error string       `json:"error,omitempty"`
	Code  runtime.Code `json:"code,omitempty"` // code of Error, if Error is for clients
	Full  bool         `json:"full,omitempty"` // with Error: the disk is full
}

// packetWithin bounds how long a worker waits for a packet: registries can be slow.
const packetWithin = 10 * time.Minute

// Work serves requests from a connection, in a world-writable directory, until the connection ends
// or ctx does. A request can't make it do more than its process may.
func Work(ctx context.Context, conn *net.UnixConn, dir *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	w := &worker{conn: conn, at: fmt.Sprintf("/proc/self/fd/%d", dir.Fd())}
	defer func() {
		if w.tree != nil {
			_ = w.tree.Close()
		}
	}()
	for {
		err := w.serve(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		answer := report{Done: true}
		if w.tree != nil {
			answer.Disk = w.tree.Disk()
		}
		if known, ok := errors.AsType[*runtime.Error](err); ok {
			answer.Error, answer.Code = known.Message, known.Code
		} else if err != nil {
			answer.Error = err.Error()
		}
		answer.Full = tree.IsFull(err)
		// A worker serves no request after a failed one.
		if failed := w.send(answer); failed != nil || err != nil {
			return errors.Join(err, failed)
		}
	}
}

// A worker is the state of Work. at is the path of its directory. tree is nil until a beginPacket
// came. buffer holds the last packet.
type worker struct {
	conn   *net.UnixConn
	at     string
	tree   *tree.Tree
	buffer [maxPacket]byte
}

func (w *worker) send(r report) error {
	text, _ := json.Marshal(r) // it can't fail
	_, err := w.conn.Write(text)
	return err
}

// packet returns the next packet, whose content is valid until the next call, or io.EOF at the end.
func (w *worker) packet() (kind byte, content []byte, err error) {
	if err := w.conn.SetReadDeadline(time.Now().Add(packetWithin)); err != nil {
		return 0, nil, err
	}
	n, err := w.conn.Read(w.buffer[:])
	if err != nil {
		return 0, nil, err
	}
	if n == 0 {
		return 0, nil, io.EOF
	}
	return w.buffer[0], w.buffer[1:n], nil
}

func (w *worker) serve(ctx context.Context) error {
	kind, content, err := w.packet()
	switch {
	case err != nil:
		return err
	case kind == clearPacket:
		return w.clear()
	case kind == beginPacket && w.tree == nil:
		var spec tree.Spec
		if err := json.Unmarshal(content, &spec); err != nil {
			return err
		}
		w.tree, err = tree.Make(filepath.Join(w.at, rootName), spec, func(taken int64) error { return w.send(report{Disk: taken}) })
		return err
	case kind == lastPacket && w.tree != nil:
		return w.tree.Finish(ctx)
	case (kind == dataPacket || kind == endPacket) && w.tree != nil:
		return w.tree.Layer(ctx, &layerPackets{w: w, rest: content, end: kind == endPacket})
	}
	return fmt.Errorf("unexpected packet of kind %q", kind)
}

// clear deletes the contents of the directory, except files that belong to the server.
func (w *worker) clear() error {
	root, err := os.OpenRoot(w.at)
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		// The server deletes its own files, which this process may not.
		if failed := root.RemoveAll(e.Name()); !errors.Is(failed, unix.EPERM) && !errors.Is(failed, unix.EACCES) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// layerPackets reads a layer from its packets. rest is the unread part of the last packet; end
// reports that the endPacket came.
type layerPackets struct {
	w    *worker
	rest []byte
	end  bool
}

// Read implements io.Reader. It returns io.ErrUnexpectedEOF if the connection ends before the layer.
func (l *layerPackets) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.end {
			return 0, io.EOF
		}
		kind, content, err := l.w.packet()
		switch {
		case errors.Is(err, io.EOF):
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, err
		case kind == endPacket:
			l.end = true
		case kind == dataPacket:
			l.rest = content
		default:
			return 0, fmt.Errorf("unexpected packet of kind %q in a layer", kind)
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

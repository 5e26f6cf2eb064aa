package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// An unpacker makes an image's root directory. One goroutine uses it.
type unpacker interface {
	Layer(ctx context.Context, content io.Reader) error // applies a layer, and reads it to its end
	Finish(ctx context.Context) error
	Disk() int64  // about the bytes that the image takes on the disk by now
	Close() error // may be called again
}

// unpacker returns an unpacker that makes rootName in dir for the image's user. From time to time it
// calls room with the bytes that are on the disk; an error of room ends the work.
func (c *Cache) unpacker(ctx context.Context, dir, user, workingDirectory string, room func(taken int64) error) (unpacker, error) {
	spec := tree.Spec{Limits: c.config.Image, Skeleton: c.config.Skeleton, User: user, WorkingDirectory: workingDirectory}
	if c.config.Worker == nil {
		return tree.Make(filepath.Join(dir, rootName), spec, room)
	}
	spec.Alone = c.config.Alone
	f, err := c.start(ctx, dir, room)
	if err != nil {
		return nil, err
	}
	if err := f.request(ctx, beginPacket, spec); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Bounds of a removal.
const (
	goneWithin  = 5 * time.Second // how long an abandoned worker may continue with a file
	leaveWithin = time.Second     // how long an ending server continues to delete
)

// remove deletes a directory of the cache, regardless of its files' owners. When ctx ends, it
// continues for at most leaveWithin. It gives up on what is left after no other worker can be
// active there: those files belong to users that the server no longer has.
func (c *Cache) remove(ctx context.Context, dir string) error {
	return c.removeAfter(ctx, dir, goneWithin)
}

// removeAfter is remove with another bound for abandoned workers.
func (c *Cache) removeAfter(ctx context.Context, dir string, gone time.Duration) error {
	err := os.RemoveAll(dir)
	if c.config.Worker == nil {
		return err
	}
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(leaveWithin, cancel) })()
	for until := time.Now().Add(gone); err != nil; {
		last := time.Now().After(until)
		if failed := c.clear(within, dir); failed != nil {
			return failed
		}
		if err = os.RemoveAll(dir); err == nil || last {
			break
		}
		if backoff.Sleep(within, 50*time.Millisecond) != nil { // there is no other way to wait for the abandoned worker
			return err
		}
	}
	return err
}

// Remove deletes all images below config.Dir, with files of any owner. No Cache may be open there.
func Remove(ctx context.Context, config Config) error {
	c := &Cache{config: config}
	var err error
	for _, pattern := range []string{"*", tempName + "/*", tempName + "/*/*"} {
		roots, _ := filepath.Glob(filepath.Join(config.Dir, pattern, rootName)) // the pattern is valid
		for _, root := range roots {
			err = errors.Join(err, c.remove(ctx, filepath.Dir(root)))
		}
	}
	return err
}

type remoteUnpacker struct {
	conn    *net.UnixConn
	dir     *os.File
	taken   atomic.Int64
	answers chan report    // capacity 1: the answer to the last packet; closed by read
	reading sync.WaitGroup // the goroutine of read; Close waits for it
	refused error          // why the worker can't continue; set before answers is closed
	unwatch func() bool
}

// start starts a worker in a directory of the server. The directory is world-writable until Close,
// but only the server and the worker can reach it.
func (c *Cache) start(ctx context.Context, dir string, room func(taken int64) error) (*remoteUnpacker, error) {
	if err := os.Chmod(dir, 0o777); err != nil {
		return nil, err
	}
	open, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	conn, err := c.config.Worker(ctx, open)
	if err != nil {
		return nil, errors.Join(err, open.Close(), os.Chmod(dir, 0o700))
	}
	f := &remoteUnpacker{conn: conn, dir: open, answers: make(chan report, 1)}
	f.unwatch = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	f.reading.Go(func() { f.read(room) })
	return f, nil
}

func (c *Cache) clear(ctx context.Context, dir string) error {
	f, err := c.start(ctx, dir, func(int64) error { return nil })
	if err != nil {
		return err
	}
	return errors.Join(f.request(ctx, clearPacket, nil), f.Close())
}

// read receives reports until the worker ends, or there is no more room.
func (f *remoteUnpacker) read(room func(taken int64) error) {
	defer close(f.answers)
	packet := make([]byte, maxPacket)
	for reset := false; ; {
		n, err := f.conn.Read(packet)
		if errors.Is(err, unix.ECONNRESET) && !reset { // it ended early; its last report may follow
			reset = true
			continue
		}
		var r report
		if err == nil {
			err = json.Unmarshal(packet[:n], &r)
		}
		if err != nil {
			f.refused = err
			return
		}
		f.taken.Store(r.Disk)
		if r.Done {
			f.answers <- r
		} else if err := room(r.Disk); err != nil {
			f.refused = err
			_ = f.conn.Close() // this ends the worker
			return
		}
	}
}

func (f *remoteUnpacker) send(kind byte, content []byte) error {
	_, err := f.conn.Write(append([]byte{kind}, content...))
	return err
}

func (f *remoteUnpacker) request(ctx context.Context, kind byte, content any) error {
	text, _ := json.Marshal(content) // it can't fail
	return f.answered(ctx, f.send(kind, text))
}

// answered waits for the worker's answer. If sending failed, the worker's last report says why.
func (f *remoteUnpacker) answered(ctx context.Context, sent error) error {
	r, ok := <-f.answers
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !ok && (tree.HasMessage(f.refused) || tree.IsFull(f.refused)):
		return f.refused
	case !ok:
		return fmt.Errorf("the process that unpacks images has ended: %w", errors.Join(sent, f.refused))
	case r.Error == "":
		return sent
	case r.Full:
		return fmt.Errorf("%s: %w", r.Error, unix.ENOSPC)
	case r.Code != "":
		return runtime.Errorf(r.Code, "%s", r.Error)
	}
	return errors.New(r.Error)
}

// Layer implements unpacker. It sends the layer in packets, and waits for the answer to its end.
func (f *remoteUnpacker) Layer(ctx context.Context, content io.Reader) error {
	packet := make([]byte, maxPacket)
	packet[0] = dataPacket
	for {
		var err error
		n := 1
		// Only the last packet isn't full, however little a Read returns.
		for n < len(packet) && err == nil {
			var more int
			more, err = content.Read(packet[n:])
			n += more
		}
		if _, failed := f.conn.Write(packet[:n]); failed != nil {
			return f.answered(ctx, failed)
		}
		if err == io.EOF { // unwrapped only: a wrapped EOF is an error of the source
			return f.answered(ctx, f.send(endPacket, nil))
		}
		if err != nil {
			return tree.Explain(ctx, "", err)
		}
	}
}

// Finish implements unpacker. It waits for the worker's answer.
func (f *remoteUnpacker) Finish(ctx context.Context) error {
	return f.request(ctx, lastPacket, nil)
}

// Disk implements unpacker, with the number in the worker's last report.
func (f *remoteUnpacker) Disk() int64 { return f.taken.Load() }

// Close ends the worker, waits for read, and makes the directory private again.
func (f *remoteUnpacker) Close() error {
	if f.dir == nil {
		return nil
	}
	f.unwatch()
	_ = f.conn.Close()
	for range f.answers { // read may still send one
	}
	f.reading.Wait()
	err := errors.Join(f.dir.Chmod(0o700), f.dir.Close())
	f.dir = nil
	return err
}

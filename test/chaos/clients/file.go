package clients

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/chaos/house"
	"github.com/rockpool/rockpool/test/chaos/ledger"
	"github.com/rockpool/rockpool/test/chaos/moment"
)

// A file is one that its holder uploads repeatedly, each time with another content. The runner must
// always have the old one or the new one.
type file struct {
	*Holder
	runner  string
	version int
	maybe   map[string]int // versions that the runner may have, by their output of sha256sum
}

// noFile stands for a digest if the runner doesn't have the file yet.
const noFile = "none"

// lineBytes is the length of a line of the content: its version and its number.
const lineBytes = 16

// newFile returns a file that the runner doesn't have yet.
func newFile(c *Holder, runner string) *file {
	return &file{Holder: c, runner: runner, maybe: map[string]int{noFile: 0}}
}

// upload sends a new version, and may cut the connection.
func (f *file) upload(ctx context.Context) {
	f.version++
	size := 1 + f.random.IntN(4<<20)
	cut := size
	if f.random.IntN(4) == 0 {
		cut = f.random.IntN(size)
	}
	began := time.Now()
	call, cancel := context.WithTimeout(ctx, house.CallWithin)
	defer cancel()
	sum := sha256.New()
	if _, err := io.Copy(sum, &content{version: f.version, left: size, cut: size}); err != nil {
		panic(err) // reading from memory doesn't fail
	}
	defer f.timing.Begin(moment.Upload)()
	err := f.UploadFile(call, f.runner, "file", "", false, int64(size), &content{version: f.version, left: size, cut: cut, each: time.Duration(f.random.IntN(6)) * time.Millisecond})
	digest := hex.EncodeToString(sum.Sum(nil))
	f.Ledger.Count(ledger.Uploads, 1)
	if err == nil && cut == size {
		f.maybe = map[string]int{digest: f.version}
		return
	}
	f.Ledger.Count(ledger.CutUploads, 1)
	switch {
	case cut < size: // it was never complete: the old file stays
		return
	case client.Passing(err) || f.Excused(began, err):
		f.maybe[digest] = f.version
	case house.CodeOf(err) == runtime.CodeRunnerGone:
		f.maybe[digest] = f.version
		f.Ledger.Gone(f.runner)
	default:
		f.Refused(ctx, "upload", err)
	}
}

// check reads the file's digest inside the runner.
func (f *file) check(ctx context.Context) {
	text, code, ok := f.probe(ctx, f.runner, "[ -e file ] || { echo "+noFile+"; exit; }; sha256sum file")
	if !ok {
		return
	}
	found, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	if _, known := f.maybe[found]; !known || code != 0 {
		f.Ledger.Wrong(ledger.HalfFiles, 1, "the file of runner %s has the digest %q after upload %d, want one of %v", f.runner, text, f.version, f.maybe)
	}
}

// A content is one version of a file, which is read in pieces.
type content struct {
	version   int
	left, cut int // bytes left, and bytes after which it is cut
	sent      int
	each      time.Duration // pause between pieces
}

// errCut is the read error with which a content breaks its own upload.
var errCut = errors.New("the upload is cut off")

// Read returns errCut after cut bytes. Each byte follows from the version and its offset, so that a
// mixture of two versions has another digest than both.
func (c *content) Read(p []byte) (int, error) {
	const piece = 64 << 10
	if c.left == 0 {
		return 0, io.EOF
	}
	if c.sent >= c.cut {
		return 0, errCut
	}
	if c.each > 0 {
		<-time.After(c.each)
	}
	n := min(len(p), piece, c.left, c.cut-c.sent)
	for i := 0; i < n; {
		at := c.sent + i
		i += copy(p[i:n], fmt.Sprintf("%07d %07d\n", c.version, at/lineBytes)[at%lineBytes:])
	}
	c.sent += n
	c.left -= n
	return n, nil
}

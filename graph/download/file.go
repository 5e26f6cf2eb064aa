package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A content is a runner's file as an io.ReadSeeker. When Read doesn't continue where the last one
// ended, the file is opened again.
type content struct {
	file   runtime.File
	open   func(offset int64) (runtime.File, io.ReadCloser, error)
	stream io.ReadCloser // nil before it is opened
	next   int64         // offset of the stream
	at     int64         // offset of the next Read
}

// open opens a file. It refuses files that can't be downloaded.
func (h Handler) open(ctx context.Context, id runtime.RunnerID, at string) (*content, error) {
	c := &content{open: func(offset int64) (runtime.File, io.ReadCloser, error) {
		return h.Files.OpenFile(ctx, id, at, offset)
	}}
	var err error
	c.file, c.stream, err = c.open(0)
	return c, err
}

// settled is the age at which a file's modification time identifies its version. File systems count
// time in steps of some milliseconds, so two versions of a younger file can have the same time.
const settled = time.Second

// tag returns the file's entity tag. It is a weak one if the file may be changing.
func (c *content) tag() string {
	tag := fmt.Sprintf(`"%x-%x"`, c.file.Size, c.file.ModifiedAt.UnixNano())
	if time.Since(c.file.ModifiedAt) < settled {
		return "W/" + tag
	}
	return tag
}

func (c *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.file.Size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek: to %d", offset)
	}
	c.at = offset
	return offset, nil
}

func (c *content) Read(p []byte) (int, error) {
	if c.at >= c.file.Size {
		return 0, io.EOF
	}
	if c.stream == nil || c.next != c.at {
		if err := c.reopen(); err != nil {
			return 0, err
		}
	}
	n, err := c.stream.Read(p)
	c.at += int64(n)
	c.next = c.at
	if errors.Is(err, io.EOF) && c.at < c.file.Size {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// reopen opens the file at the offset of the next Read. It returns an error if the file has
// changed.
func (c *content) reopen() error {
	if err := c.Close(); err != nil {
		return err
	}
	now, stream, err := c.open(c.at)
	if err != nil {
		return err
	}
	c.stream, c.next = stream, c.at
	if now.Size != c.file.Size || !now.ModifiedAt.Equal(c.file.ModifiedAt) {
		return errors.New("the file changed meanwhile")
	}
	return nil
}

// Close implements io.Closer. It is safe to call again.
func (c *content) Close() error {
	if c.stream == nil {
		return nil
	}
	err := c.stream.Close()
	c.stream = nil
	return err
}

// disposition returns a Content-Disposition (RFC 6266). It has the name in ASCII and, if that isn't
// the whole name, also in UTF-8 (RFC 8187).
func disposition(kind, name string) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	var plain, whole strings.Builder
	for _, r := range name {
		if r >= ' ' && r <= '~' && !strings.ContainsRune(`"\%/`, r) {
			plain.WriteRune(r)
		} else {
			plain.WriteByte('_')
		}
	}
	for i := range len(name) {
		if c := name[i]; c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte("!#$&+-.^_`|~", c) >= 0 {
			whole.WriteByte(c)
		} else {
			fmt.Fprintf(&whole, "%%%02X", c)
		}
	}
	value := kind + `; filename="` + plain.String() + `"`
	if plain.String() != name {
		value += "; filename*=UTF-8''" + whole.String()
	}
	return value
}

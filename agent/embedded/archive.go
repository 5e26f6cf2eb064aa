package embedded

import (
	"archive/tar"
	"bytes"
	"io"
)

// ArchivedName is the agent's file name in an archive.
const ArchivedName = "rockpool-agent"

// block is the block size of tar archives, in bytes. Two blocks of zeros end an archive.
const block = 512

// Archive returns a tar archive that contains only the agent for an architecture, as an executable
// file. The same agent always gives the same bytes. Nomad needs an archive: a file that it fetches
// directly isn't executable.
func Archive(arch string) (*io.SectionReader, error) {
	body, err := open(arch)
	if err != nil {
		return nil, err
	}
	var head bytes.Buffer
	header := tar.Header{Name: ArchivedName, Mode: 0o755, Size: body.Size(), Format: tar.FormatUSTAR}
	if err := tar.NewWriter(&head).WriteHeader(&header); err != nil {
		return nil, err
	}
	a := archive{head: head.Bytes(), body: body}
	blocks := (body.Size() + block - 1) / block
	return io.NewSectionReader(a, 0, (1+blocks+2)*block), nil
}

// An archive is assembled while it is read, so that the agent isn't copied.
type archive struct {
	head []byte // of one block
	body *io.SectionReader
}

// ReadAt implements io.ReaderAt. The archive is followed by an endless sequence of zeros.
func (a archive) ReadAt(p []byte, at int64) (n int, err error) {
	for n < len(p) {
		rest, here := p[n:], at+int64(n)
		switch {
		case here < block:
			n += copy(rest, a.head[here:])
		case here < block+a.body.Size():
			m, err := a.body.ReadAt(rest[:min(int64(len(rest)), block+a.body.Size()-here)], here-block)
			n += m
			if err != nil && err != io.EOF {
				return n, err
			}
		default:
			clear(rest)
			n = len(p)
		}
	}
	return n, nil
}

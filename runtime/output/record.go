package output

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Record is one piece of output as the agent read it, or a new size of the execution's terminal.
type Record struct {
	Stream runtime.Stream
	Offset int64                // output bytes of both streams before it
	Since  time.Duration        // since the execution's start, in whole microseconds
	Data   []byte               // 1 to MaxData bytes; none with a Size
	Size   runtime.TerminalSize // the zero size means that it is output
}

// Resized reports whether the record is a terminal size.
func (r Record) Resized() bool { return r.Size != (runtime.TerminalSize{}) }

// End returns the output offset after the record.
func (r Record) End() int64 { return r.Offset + int64(len(r.Data)) }

// MaxData bounds the data of a record, in bytes.
const MaxData = 32 << 10

// A record on disk, integers little endian:
//
//	checksum uint32  CRC-32C of all that follows
//	size     uint32  of the data
//	stream   uint8; 3: the data is a terminal's columns and rows, each uint16
//	offset   uint64
//	since    uint64  microseconds
//	data
const (
	headerSize = 4 + 4 + 1 + 8 + 8
	resized    = 3
	sizeBytes  = 2 + 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errTorn says that bytes are no whole record: cut off, or damaged.
var errTorn = errors.New("torn record")

func encode(to []byte, r Record) []byte {
	start := len(to)
	if r.Resized() {
		r.Stream = resized
		r.Data = binary.LittleEndian.AppendUint16(nil, uint16(r.Size.Columns))
		r.Data = binary.LittleEndian.AppendUint16(r.Data, uint16(r.Size.Rows))
	}
	to = append(to, 0, 0, 0, 0)
	to = binary.LittleEndian.AppendUint32(to, uint32(len(r.Data)))
	to = append(to, byte(r.Stream))
	to = binary.LittleEndian.AppendUint64(to, uint64(r.Offset))
	to = binary.LittleEndian.AppendUint64(to, uint64(r.Since.Microseconds()))
	to = append(to, r.Data...)
	binary.LittleEndian.PutUint32(to[start:], crc32.Checksum(to[start+4:], castagnoli))
	return to
}

// decode decodes the record at the start of from, and returns its size on disk. With too few bytes it
// returns errTorn and the size that it needs. Data is part of from.
func decode(from []byte) (r Record, size int, err error) {
	if len(from) < headerSize {
		return Record{}, headerSize, errTorn
	}
	n := binary.LittleEndian.Uint32(from[4:])
	if n == 0 || n > MaxData {
		return Record{}, 0, errTorn
	}
	size = headerSize + int(n)
	if len(from) < size {
		return Record{}, size, errTorn
	}
	if binary.LittleEndian.Uint32(from) != crc32.Checksum(from[4:size], castagnoli) {
		return Record{}, 0, errTorn
	}
	r = Record{
		Stream: runtime.Stream(from[8]),
		Offset: int64(binary.LittleEndian.Uint64(from[9:])),
		Since:  time.Duration(binary.LittleEndian.Uint64(from[17:])) * time.Microsecond,
		Data:   from[headerSize:size:size],
	}
	if r.Stream == resized {
		if len(r.Data) != sizeBytes {
			return Record{}, 0, errTorn
		}
		r.Size = runtime.TerminalSize{Columns: int(binary.LittleEndian.Uint16(r.Data)), Rows: int(binary.LittleEndian.Uint16(r.Data[2:]))}
		r.Stream, r.Data = 0, nil
		if !possible(r.Size) {
			return Record{}, 0, errTorn
		}
	}
	return r, size, nil
}

func possible(size runtime.TerminalSize) bool {
	return size.Columns >= 1 && size.Columns <= runtime.MaxTerminalSize && size.Rows >= 1 && size.Rows <= runtime.MaxTerminalSize
}

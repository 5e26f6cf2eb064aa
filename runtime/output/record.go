package output

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Record is one piece of output, as the agent read it.
type Record struct {
	Stream runtime.Stream
	Offset int64         // output bytes of both streams before it
	Since  time.Duration // since the execution's start, in whole microseconds
	Data   []byte        // 1 to MaxData bytes
}

// MaxData is how many bytes a record holds at most.
const MaxData = 32 << 10

// A record on disk, integers little endian:
//
//	checksum uint32  CRC-32C of all that follows
//	size     uint32  of the data
//	stream   uint8
//	offset   uint64
//	since    uint64  microseconds
//	data
const headerSize = 4 + 4 + 1 + 8 + 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errTorn is a record that isn't whole: cut off, or not a record at all.
var errTorn = errors.New("torn record")

// encode appends r as it is on disk.
func encode(to []byte, r Record) []byte {
	start := len(to)
	to = append(to, 0, 0, 0, 0)
	to = binary.LittleEndian.AppendUint32(to, uint32(len(r.Data)))
	to = append(to, byte(r.Stream))
	to = binary.LittleEndian.AppendUint64(to, uint64(r.Offset))
	to = binary.LittleEndian.AppendUint64(to, uint64(r.Since.Microseconds()))
	to = append(to, r.Data...)
	binary.LittleEndian.PutUint32(to[start:], crc32.Checksum(to[start+4:], castagnoli))
	return to
}

// decode reads the record at the start of from, and its size on disk. With
// too few bytes it returns how many it needs as size, and errTorn; Data stays
// part of from.
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
	return Record{
		Stream: runtime.Stream(from[8]),
		Offset: int64(binary.LittleEndian.Uint64(from[9:])),
		Since:  time.Duration(binary.LittleEndian.Uint64(from[17:])) * time.Microsecond,
		Data:   from[headerSize:size:size],
	}, size, nil
}

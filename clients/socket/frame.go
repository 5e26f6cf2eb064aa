package socket

import (
	"encoding/binary"
)

// The first byte of a WebSocket's frames from a server (RFC 6455, section 5.2): whole messages,
// without a mask.
const (
	OpText  = 0x81
	OpClose = 0x88
	OpPing  = 0x89
	OpPong  = 0x8a
)

// Frame returns a frame.
func Frame(op byte, payload []byte) []byte {
	return append(AppendHeader(nil, op, len(payload)), payload...)
}

// AppendHeader appends the header of a frame with a payload of this size.
func AppendHeader(to []byte, op byte, size int) []byte {
	switch {
	case size < 126:
		return append(to, op, byte(size))
	case size < 1<<16:
		return binary.BigEndian.AppendUint16(append(to, op, 126), uint16(size))
	default:
		return binary.BigEndian.AppendUint64(append(to, op, 127), uint64(size))
	}
}

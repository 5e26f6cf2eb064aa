package agent

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// ErrProtocol is in the chain of every error that says that the peer violated the protocol. The
// stream can't be used after it.
var ErrProtocol = errors.New("protocol violation")

// A Side is one end of a stream: the set of the kinds of frames that it may receive.
type Side uint32

// The sides.
const (
	ClientSide = Side(1<<KindResponse | 1<<KindStarted | 1<<KindOutput | 1<<KindStdinWindow | 1<<KindExited |
		1<<KindFile | 1<<KindData | 1<<KindEnd | 1<<KindUpdated | 1<<KindResized | 1<<KindChanges)
	AgentSide = Side(1<<KindRequest | 1<<KindStdin | 1<<KindStdinEnd | 1<<KindAck | 1<<KindKill |
		1<<KindSettled | 1<<KindData | 1<<KindEnd | 1<<KindResize | 1<<KindSignal | 1<<KindResizedAck)
)

// Sizes of frames and of a reader's buffer, in bytes.
const (
	headerSize = 5       // bytes: length and kind
	maxJSON    = 1 << 20 // bytes of a control frame's body, except for Request and Updated

	outputHeader = 1 + 8 + 8
	stdinHeader  = 8
	resizedBody  = 8 + 8 + 2 + 2

	// A reader's buffer starts small, since most streams carry a few hundred bytes. It grows, and
	// shrinks to keptBuffer (about four data frames) after a large frame.
	firstBuffer = 1 << 10
	keptBuffer  = 128 << 10
)

// bounds returns the minimum and maximum length of the body of such a frame, in bytes.
func (k Kind) bounds() (least, most int) {
	switch k {
	case KindRequest, KindUpdated:
		return 2, MaxFrame - 1
	case KindOutput:
		return outputHeader + 1, outputHeader + MaxData
	case KindStdin:
		return stdinHeader + 1, stdinHeader + MaxData
	case KindData:
		return 1, MaxData
	case KindStdinWindow:
		return 16, 16
	case KindResized:
		return resizedBody, resizedBody
	case KindAck, KindResizedAck:
		return 8, 8
	case KindStdinEnd, KindSettled:
		return 0, 0
	case KindKill, KindResize, KindSignal:
		return 2, 1 << 10
	case KindEnd:
		return 0, maxJSON
	default:
		return 2, maxJSON
	}
}

// A FrameReader reads the frames that one side of a stream receives. It allocates at most twice the
// bytes that have arrived of the current frame. For a frame that is longer than its kind allows it
// allocates nothing. One goroutine may use it at a time.
type FrameReader struct {
	src  io.Reader
	side Side
	buf  []byte
	r, w int // buf[r:w] has arrived and wasn't returned by Next
	last int // size of the frame that Next returned last, which begins at r
}

// NewFrameReader returns a reader for the given side of src.
func NewFrameReader(src io.Reader, side Side) *FrameReader {
	return &FrameReader{src: src, side: side}
}

// Next returns the next frame. The body is valid until the next call. The error is io.EOF between
// frames, io.ErrUnexpectedEOF within one, ErrProtocol for a frame that this side may not receive,
// or the stream's own.
func (f *FrameReader) Next() (Kind, []byte, error) {
	f.r += f.last
	f.last = 0
	if err := f.need(headerSize); err != nil {
		if err == io.EOF && f.w > f.r {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	length := int64(binary.BigEndian.Uint32(f.buf[f.r:]))
	kind := Kind(f.buf[f.r+4])
	if kind > 31 || f.side&(1<<kind) == 0 {
		return 0, nil, fmt.Errorf("%w: unexpected frame of kind %d", ErrProtocol, kind)
	}
	if least, most := kind.bounds(); length-1 < int64(least) || length-1 > int64(most) {
		return 0, nil, fmt.Errorf("%w: a frame of kind %d may not have %d bytes", ErrProtocol, kind, length)
	}
	size := 4 + int(length)
	if err := f.need(size); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	f.last = size
	return kind, f.buf[f.r+headerSize : f.r+size : f.r+size], nil
}

// Buffered reports whether part of another frame has arrived, without counting frames of the ignored
// kind.
func (f *FrameReader) Buffered(ignored Kind) bool {
	rest := f.buf[f.r+f.last : f.w]
	for len(rest) >= headerSize && Kind(rest[4]) == ignored {
		size := 4 + int64(binary.BigEndian.Uint32(rest))
		if size >= int64(len(rest)) {
			return false
		}
		rest = rest[size:]
	}
	return len(rest) > 0
}

// need reads until buf holds n bytes that weren't returned.
func (f *FrameReader) need(n int) error {
	for f.w-f.r < n {
		f.room(n)
		m, err := f.src.Read(f.buf[f.w:])
		f.w += m
		if f.w-f.r >= n {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// room makes space in buf behind the received bytes, for a frame of n bytes.
func (f *FrameReader) room(n int) {
	if f.r == f.w {
		f.r, f.w = 0, 0
		if len(f.buf) > keptBuffer {
			f.buf = nil
		}
	}
	have := f.w - f.r
	switch {
	case f.buf == nil:
		f.buf = make([]byte, firstBuffer)
	// The buffer grows only when it is full of received bytes. So a peer that announces a large
	// frame doesn't make the reader allocate it.
	case have == len(f.buf):
		grown := make([]byte, 2*have)
		copy(grown, f.buf)
		f.buf = grown
	case f.w == len(f.buf) || f.r > 0 && f.r+n > len(f.buf):
		copy(f.buf, f.buf[f.r:f.w])
		f.r, f.w = 0, have
	}
}

// AppendFrame appends a frame with this body to b. The caller keeps to the bounds of the kind.
func AppendFrame(b []byte, kind Kind, body []byte) []byte {
	b = appendHeader(b, kind, len(body))
	return append(b, body...)
}

// AppendJSON appends a control frame with v as its body to b. If the body is longer than its kind
// allows, it returns an error and b unchanged.
func AppendJSON(b []byte, kind Kind, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return b, err
	}
	if _, most := kind.bounds(); len(body) > most {
		return b, fmt.Errorf("a frame of kind %d would have %d bytes; the limit is %d", kind, len(body), most)
	}
	return AppendFrame(b, kind, body), nil
}

// AppendOutput appends a KindOutput frame to b.
func AppendOutput(b []byte, stream byte, offset int64, at time.Duration, data []byte) []byte {
	b = appendHeader(b, KindOutput, outputHeader+len(data))
	b = append(b, stream)
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	b = binary.BigEndian.AppendUint64(b, uint64(at.Microseconds()))
	return append(b, data...)
}

// AppendStdin appends a KindStdin frame to b.
func AppendStdin(b []byte, offset int64, data []byte) []byte {
	b = appendHeader(b, KindStdin, stdinHeader+len(data))
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	return append(b, data...)
}

// AppendStdinWindow appends a KindStdinWindow frame to b.
func AppendStdinWindow(b []byte, received, limit int64) []byte {
	b = appendHeader(b, KindStdinWindow, 16)
	b = binary.BigEndian.AppendUint64(b, uint64(received))
	return binary.BigEndian.AppendUint64(b, uint64(limit))
}

// AppendAck appends a KindAck frame to b.
func AppendAck(b []byte, offset int64) []byte { return appendNumber(b, KindAck, offset) }

// AppendResized appends a KindResized frame to b.
func AppendResized(b []byte, offset int64, at time.Duration, size Size) []byte {
	b = appendHeader(b, KindResized, resizedBody)
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	b = binary.BigEndian.AppendUint64(b, uint64(at.Microseconds()))
	b = binary.BigEndian.AppendUint16(b, uint16(size.Columns))
	return binary.BigEndian.AppendUint16(b, uint16(size.Rows))
}

// AppendResizedAck appends a KindResizedAck frame to b.
func AppendResizedAck(b []byte, at time.Duration) []byte {
	return appendNumber(b, KindResizedAck, at.Microseconds())
}

func appendNumber(b []byte, kind Kind, number int64) []byte {
	return binary.BigEndian.AppendUint64(appendHeader(b, kind, 8), uint64(number))
}

func appendHeader(b []byte, kind Kind, body int) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(body+1))
	return append(b, byte(kind))
}

// OutputFrameSize is the size of a KindOutput frame without its data, and ResizedFrameSize that of
// a whole KindResized frame, in bytes.
const (
	OutputFrameSize  = headerSize + outputHeader
	ResizedFrameSize = headerSize + resizedBody
)

// The functions below decode the body of a frame that a FrameReader returned, so its length is one of
// its kind. Their error is ErrProtocol.

// ParseOutput decodes the body of a KindOutput frame. Data is a part of body.
func ParseOutput(body []byte) (stream byte, offset int64, at time.Duration, data []byte, err error) {
	stream = body[0]
	if stream != 1 && stream != 2 {
		return 0, 0, 0, nil, fmt.Errorf("%w: output of stream %d", ErrProtocol, stream)
	}
	offset, err = ParseAck(body[1:])
	at, late := ParseResizedAck(body[9:])
	return stream, offset, at, body[outputHeader:], cmp.Or(err, late)
}

// ParseResized decodes the body of a KindResized frame.
func ParseResized(body []byte) (offset int64, at time.Duration, size Size, err error) {
	offset, err = ParseAck(body)
	at, late := ParseResizedAck(body[8:])
	size = Size{Columns: int(binary.BigEndian.Uint16(body[16:])), Rows: int(binary.BigEndian.Uint16(body[18:]))}
	return offset, at, size, cmp.Or(err, late, size.Check())
}

// ParseStdin decodes the body of a KindStdin frame. Data is a part of body.
func ParseStdin(body []byte) (offset int64, data []byte, err error) {
	offset, err = ParseAck(body)
	return offset, body[stdinHeader:], err
}

// ParseStdinWindow decodes the body of a KindStdinWindow frame.
func ParseStdinWindow(body []byte) (received, limit int64, err error) {
	received, err = ParseAck(body)
	limit, far := ParseAck(body[8:])
	return received, limit, cmp.Or(err, far)
}

// maxOffset leaves room to add a frame's length without an overflow.
const maxOffset = 1 << 62

// ParseAck decodes the body of a KindAck frame: an offset, as it begins other bodies, too.
func ParseAck(body []byte) (offset int64, err error) {
	if len(body) < 8 || binary.BigEndian.Uint64(body) > maxOffset {
		return 0, fmt.Errorf("%w: the offset % x", ErrProtocol, body[:min(8, len(body))])
	}
	return int64(binary.BigEndian.Uint64(body)), nil
}

// ParseResizedAck decodes the body of a KindResizedAck frame: a time in microseconds that a
// time.Duration can hold.
func ParseResizedAck(body []byte) (at time.Duration, err error) {
	micros, err := ParseAck(body)
	if err != nil || micros > math.MaxInt64/int64(time.Microsecond) {
		return 0, fmt.Errorf("%w: a time of %d µs", ErrProtocol, micros)
	}
	return time.Duration(micros) * time.Microsecond, nil
}

// Check returns ErrProtocol unless both sides of the size are 1 to MaxSize.
func (s Size) Check() error {
	if s.Columns < 1 || s.Columns > MaxSize || s.Rows < 1 || s.Rows > MaxSize {
		return fmt.Errorf("%w: a terminal of %d by %d characters", ErrProtocol, s.Columns, s.Rows)
	}
	return nil
}

// ParseJSON decodes the body of a control frame into v and ignores unknown members. The error is
// ErrProtocol.
func ParseJSON(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}

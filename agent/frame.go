package agent

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// ErrProtocol is in the chain of every error that says that the peer broke
// the protocol. The stream is of no more use then.
var ErrProtocol = errors.New("protocol violation")

// A Side is one end of a stream. Its reader takes only the kinds of frames
// that the other side may send.
type Side uint32

// The sides.
const (
	ClientSide = Side(1<<KindResponse | 1<<KindStarted | 1<<KindOutput | 1<<KindStdinWindow | 1<<KindExited |
		1<<KindFile | 1<<KindData | 1<<KindEnd | 1<<KindUpdated | 1<<KindResized | 1<<KindChanges)
	AgentSide = Side(1<<KindRequest | 1<<KindStdin | 1<<KindStdinEnd | 1<<KindAck | 1<<KindKill |
		1<<KindSettled | 1<<KindData | 1<<KindEnd | 1<<KindResize | 1<<KindSignal | 1<<KindResizedAck)
)

const (
	headerSize = 5 // length and kind
	maxJSON    = 1 << 20

	outputHeader = 1 + 8 + 8
	stdinHeader  = 8
	resizedBody  = 8 + 8 + 2 + 2

	// A reader starts small, since most streams carry a few hundred bytes, and
	// keeps what it grew to up to two data frames.
	firstBuffer = 1 << 10
	keptBuffer  = 128 << 10
)

// bounds returns how short and how long the body of such a frame may be.
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

// A FrameReader reads the frames that one side of a stream receives. It
// allocates at most twice what has arrived of the frame that is being read,
// and nothing for a frame that is longer than its kind allows. It is for one
// goroutine.
type FrameReader struct {
	src  io.Reader
	side Side
	buf  []byte
	r, w int // buf[r:w] has arrived and wasn't handed out
	last int // size of the frame that was handed out, which begins at r
}

// NewFrameReader returns a reader for the given side of src.
func NewFrameReader(src io.Reader, side Side) *FrameReader {
	return &FrameReader{src: src, side: side}
}

// Next returns the next frame. The body is valid until the next call. The
// error is io.EOF between frames, io.ErrUnexpectedEOF within one, ErrProtocol
// for a frame that this side doesn't take, or the stream's own.
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
		return 0, nil, fmt.Errorf("%w: frame of kind %d", ErrProtocol, kind)
	}
	if least, most := kind.bounds(); length-1 < int64(least) || length-1 > int64(most) {
		return 0, nil, fmt.Errorf("%w: frame of kind %d with %d bytes", ErrProtocol, kind, length)
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

// Buffered reports whether something after the last frame has arrived already that isn't a frame of the kind beside.
func (f *FrameReader) Buffered(beside Kind) bool {
	rest := f.buf[f.r+f.last : f.w]
	for len(rest) >= headerSize && Kind(rest[4]) == beside {
		size := 4 + int64(binary.BigEndian.Uint32(rest))
		if size >= int64(len(rest)) {
			return false
		}
		rest = rest[size:]
	}
	return len(rest) > 0
}

// need reads until n bytes are there.
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

// room makes free bytes behind what has arrived, for a frame of n bytes.
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
	case have == len(f.buf):
		grown := make([]byte, 2*have)
		copy(grown, f.buf)
		f.buf = grown
	case f.w == len(f.buf) || f.r > 0 && f.r+n > len(f.buf):
		copy(f.buf, f.buf[f.r:f.w])
		f.r, f.w = 0, have
	}
}

// AppendFrame appends a frame with this body to b.
func AppendFrame(b []byte, kind Kind, body []byte) []byte {
	b = appendHeader(b, kind, len(body))
	return append(b, body...)
}

// AppendJSON appends a control frame with v as its body to b. It returns an
// error, and b as it was, if the body is longer than its kind allows.
func AppendJSON(b []byte, kind Kind, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return b, err
	}
	if _, most := kind.bounds(); len(body) > most {
		return b, fmt.Errorf("frame of kind %d would have %d bytes, of at most %d", kind, len(body), most)
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
func AppendAck(b []byte, offset int64) []byte {
	b = appendHeader(b, KindAck, 8)
	return binary.BigEndian.AppendUint64(b, uint64(offset))
}

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
	b = appendHeader(b, KindResizedAck, 8)
	return binary.BigEndian.AppendUint64(b, uint64(at.Microseconds()))
}

func appendHeader(b []byte, kind Kind, body int) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(body+1))
	return append(b, byte(kind))
}

// OutputFrameSize is the number of bytes that a KindOutput frame takes beside
// its data; ResizedFrameSize is that of a whole KindResized frame.
const (
	OutputFrameSize  = headerSize + outputHeader
	ResizedFrameSize = headerSize + resizedBody
)

// ParseOutput takes the body of a KindOutput frame apart.
func ParseOutput(body []byte) (stream byte, offset int64, at time.Duration, data []byte, err error) {
	if len(body) <= outputHeader || body[0] != 1 && body[0] != 2 {
		return 0, 0, 0, nil, fmt.Errorf("%w: output frame", ErrProtocol)
	}
	offset, err = parseOffset(body[1:])
	if err != nil {
		return 0, 0, 0, nil, err
	}
	if at, err = parseTime(body[9:]); err != nil {
		return 0, 0, 0, nil, err
	}
	return body[0], offset, at, body[outputHeader:], nil
}

// ParseResized takes the body of a KindResized frame apart.
func ParseResized(body []byte) (offset int64, at time.Duration, size Size, err error) {
	if len(body) != resizedBody {
		return 0, 0, Size{}, fmt.Errorf("%w: resized frame", ErrProtocol)
	}
	if offset, err = parseOffset(body); err != nil {
		return 0, 0, Size{}, err
	}
	if at, err = parseTime(body[8:]); err != nil {
		return 0, 0, Size{}, err
	}
	size = Size{Columns: int(binary.BigEndian.Uint16(body[16:])), Rows: int(binary.BigEndian.Uint16(body[18:]))}
	return offset, at, size, size.Check()
}

// ParseResizedAck takes the body of a KindResizedAck frame apart.
func ParseResizedAck(body []byte) (at time.Duration, err error) {
	if len(body) != 8 {
		return 0, fmt.Errorf("%w: ack of a size", ErrProtocol)
	}
	return parseTime(body)
}

// ParseStdin takes the body of a KindStdin frame apart.
func ParseStdin(body []byte) (offset int64, data []byte, err error) {
	if len(body) <= stdinHeader {
		return 0, nil, fmt.Errorf("%w: stdin frame", ErrProtocol)
	}
	offset, err = parseOffset(body)
	return offset, body[stdinHeader:], err
}

// ParseStdinWindow takes the body of a KindStdinWindow frame apart.
func ParseStdinWindow(body []byte) (received, limit int64, err error) {
	if len(body) != 16 {
		return 0, 0, fmt.Errorf("%w: stdin window frame", ErrProtocol)
	}
	if received, err = parseOffset(body); err != nil {
		return 0, 0, err
	}
	limit, err = parseOffset(body[8:])
	return received, limit, err
}

// ParseAck takes the body of a KindAck frame apart.
func ParseAck(body []byte) (offset int64, err error) {
	if len(body) != 8 {
		return 0, fmt.Errorf("%w: ack frame", ErrProtocol)
	}
	return parseOffset(body)
}

// maxOffset leaves room for adding a frame's length without overflow.
const maxOffset = 1 << 62

func parseOffset(b []byte) (int64, error) {
	v := binary.BigEndian.Uint64(b)
	if v > maxOffset {
		return 0, fmt.Errorf("%w: offset %d", ErrProtocol, v)
	}
	return int64(v), nil
}

func parseTime(b []byte) (time.Duration, error) {
	micros, err := parseOffset(b)
	if err != nil || micros > int64(1<<63-1)/int64(time.Microsecond) {
		return 0, fmt.Errorf("%w: a time of %d µs", ErrProtocol, micros)
	}
	return time.Duration(micros) * time.Microsecond, nil
}

// Check returns ErrProtocol for a size that no terminal may have.
func (s Size) Check() error {
	if s.Columns < 1 || s.Columns > MaxSize || s.Rows < 1 || s.Rows > MaxSize {
		return fmt.Errorf("%w: a terminal of %d by %d", ErrProtocol, s.Columns, s.Rows)
	}
	return nil
}

// ParseJSON takes the body of a control frame apart.
func ParseJSON(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}

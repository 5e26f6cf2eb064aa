package world

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

func (w *World) serve() error {
	err := errors.Join(w.listen(Port), w.do(func() error {
		for _, port := range []int{Port, 53, 853} {
			if err := w.listen(port); err != nil {
				return err
			}
		}
		return w.listenLite()
	}))
	if err != nil {
		return err
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.Names = conn.LocalAddr().String()
	w.datagrams(conn, func(question []byte) []byte {
		name, answer := answer(question)
		w.received.Store("asked "+name, true)
		return answer
	})
	return nil
}

// listen responds to connections and datagrams at a port of all addresses, in this thread's network
// namespace.
func (w *World) listen(port int) error {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
	if err != nil {
		return err
	}
	w.connections(tcp)
	udp, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		return err
	}
	w.datagrams(udp, w.note)
	return nil
}

// note records a datagram's text, without trailing zeros.
func (w *World) note(datagram []byte) []byte {
	text, _, _ := bytes.Cut(datagram, []byte{0})
	w.received.Store(string(text), true)
	return []byte("answered")
}

// listenLite receives datagrams of UDP-Lite, a separate protocol, if the kernel has it.
func (w *World) listenLite() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDPLITE)
	if err != nil {
		return nil //nolint:nilerr // then no program can use it
	}
	file := os.NewFile(uintptr(fd), "udplite")
	defer file.Close()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: Port}); err != nil {
		return err
	}
	conn, err := net.FilePacketConn(file)
	if err != nil {
		return err
	}
	w.datagrams(conn, w.note)
	return nil
}

func (w *World) datagrams(conn net.PacketConn, answer func([]byte) []byte) {
	w.closers = append(w.closers, conn.Close)
	w.parts.Go(func() {
		for datagram := make([]byte, 1<<16); ; {
			n, from, err := conn.ReadFrom(datagram)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if text := answer(datagram[:n]); err == nil && text != nil {
				_, _ = conn.WriteTo(text, from)
			}
		}
	})
}

func (w *World) connections(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	w.closers = append(w.closers, func() error {
		cancel()
		return l.Close()
	})
	w.parts.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.parts.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				converse(conn)
			})
		}
	})
}

// converse does what a client's first word says: it reads everything (drain), sends endlessly
// (flood), or responds.
func converse(conn net.Conn) {
	word := make([]byte, 5)
	if _, err := io.ReadFull(conn, word); err != nil {
		return
	}
	switch string(word) {
	case "drain":
		_, _ = io.Copy(io.Discard, conn)
		_, _ = io.WriteString(conn, "answered")
	case "flood":
		_, _ = io.CopyN(conn, zeros{}, 1<<40)
	default:
		_, _ = io.WriteString(conn, "answered")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// names has the name server's names and their addresses. An attacker with a domain can choose such addresses.
var names = map[string]string{
	"public.example":   Public4,
	"lan.example":      LAN4,
	"lan6.example":     LAN6,
	"metadata.example": Metadata,
	"machine.example":  MachineLAN4,
	"mapped.example":   "::ffff:" + LAN4,
	"zero.example":     "0.0.0.0",
	"local.example":    "127.0.0.1",
}

func answer(query []byte) (name string, response []byte) {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return "", nil
	}
	question, err := parser.Question()
	if err != nil {
		return "", nil
	}
	name = strings.ToLower(strings.TrimSuffix(question.Name.String(), "."))
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: header.ID, Response: true, RecursionDesired: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{question},
	}
	to, known := names[name]
	answer := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 60}}
	switch address, _ := netip.ParseAddr(to); {
	case !known:
		message.RCode = dnsmessage.RCodeNameError
	case address.Is4() && question.Type == dnsmessage.TypeA:
		answer.Body = &dnsmessage.AResource{A: address.As4()}
	case address.Is6() && question.Type == dnsmessage.TypeAAAA:
		answer.Body = &dnsmessage.AAAAResource{AAAA: address.As16()}
	}
	if answer.Body != nil {
		message.Answers = []dnsmessage.Resource{answer}
	}
	response, _ = message.Pack()
	return name, response
}

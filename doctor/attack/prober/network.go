package main

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// askWithin is the timeout of a request. A blocked request is refused immediately or never answered.
const askWithin = 10 * time.Second

// askAll contacts all addresses concurrently, such as "tcp/20.0.0.2:7777", and prints for each
// "answered" or the error. The network "mapped" uses an IPv4-mapped IPv6 address.
func askAll(destinations []string) {
	answers := make([]string, len(destinations))
	var all sync.WaitGroup
	for i, to := range destinations {
		all.Go(func() {
			network, at, _ := strings.Cut(to, "/")
			ask := func() error { return askAt(&net.Dialer{Timeout: askWithin}, network, at) }
			if network == "mapped" {
				ask = func() error { return askMapped(at) }
			}
			answers[i] = strings.Join([]string{network, at, answered(ask())}, " ")
		})
	}
	all.Wait()
	say(strings.Join(answers, "\n"))
}

// answered describes a request's end: "answered", "silence" after a timeout, or the name of the
// error.
func answered(err error) string {
	var late interface{ Timeout() bool }
	switch {
	case err == nil:
		return "answered"
	case errors.As(err, &late) && late.Timeout(), errors.Is(err, unix.EINPROGRESS): // connect returns this after SO_SNDTIMEO
		return "silence"
	}
	return result(err)
}

// askAt connects to an address and waits for a response. It returns nil if it got one.
func askAt(d *net.Dialer, network, at string) error {
	conn, err := d.Dial(network, at)
	if err != nil {
		return err
	}
	defer conn.Close()
	return converse(conn, askWithin)
}

// converse sends a greeting and reads up to 16 bytes, within a time.
func converse(conn net.Conn, within time.Duration) error {
	_ = conn.SetDeadline(time.Now().Add(within))
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 16))
	return err
}

func askMapped(at string) error {
	to, err := netip.ParseAddrPort(at)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: int64(askWithin / time.Second)}) // also the timeout of connect
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	if err := unix.Connect(fd, &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}); err != nil {
		return err
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return err
	}
	defer conn.Close()
	return converse(conn, askWithin)
}

// send sends a datagram with a text, padded with zeros to a size. It doesn't wait for a response.
func send(at, text string, size int) {
	conn, err := net.Dial("udp", at)
	if err == nil {
		_, err = conn.Write(append([]byte(text), make([]byte, max(0, size-len(text)))...))
		_ = conn.Close()
	}
	say("sent", at, result(err))
}

func askFrom(port int, at string) {
	say("tcp", at, answered(askAt(&net.Dialer{LocalAddr: &net.TCPAddr{Port: port}, Timeout: askWithin}, "tcp", at)))
}

// forge sends a datagram from an address that the runner doesn't have.
func forge(from, text, at string) {
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { // an error shows up when the socket is bound
			_ = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
			_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
		})
	}}
	conn, err := d.Dial("udp", at)
	if err == nil {
		_, err = conn.Write([]byte(text))
		_ = conn.Close()
	}
	say("forged", result(err))
}

// lite sends a UDP-Lite datagram, which is neither TCP nor UDP.
func lite(to, text string, port int) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDPLITE)
	if err == nil {
		err = unix.Sendto(fd, []byte(text), 0, &unix.SockaddrInet4{Addr: netip.MustParseAddr(to).As4(), Port: port})
		_ = unix.Close(fd)
	}
	say("lite", result(err))
}

// flows sends requests from new ports until three in a row stay unanswered, or until most are
// answered. The machine's connection tracking keeps an entry for each.
func flows(at string, most int) {
	answers, silent := 0, 0
	for answers < most && silent < 3 {
		conn, err := net.Dial("udp", at)
		if err != nil {
			break
		}
		err = converse(conn, 2*time.Second)
		_ = conn.Close()
		if silent++; err == nil {
			answers++
			silent = 0
		}
	}
	amount := "few"
	switch {
	case answers >= most:
		amount = "all"
	case answers < most/4:
		amount = "hardly any"
	}
	say("followed", amount+",", strconv.Itoa(answers))
}

// rate prints whether the given number of bytes passes in less than 300 ms: "drain" sends, "flood" receives.
func rate(word, at string, bytes int) {
	conn, err := net.Dial("tcp", at)
	if err != nil {
		say(word, result(err))
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
	began := time.Now()
	if _, err = conn.Write([]byte(word)); err == nil && word == "drain" {
		if _, err = conn.Write(make([]byte, bytes)); err == nil {
			_ = conn.(*net.TCPConn).CloseWrite()
			_, err = conn.Read(make([]byte, 16)) // all bytes have arrived
		}
	} else if err == nil {
		_, err = io.CopyN(io.Discard, conn, int64(bytes))
	}
	pace, took := "slow", time.Since(began)
	if took < 300*time.Millisecond {
		pace = "fast"
	}
	if err != nil {
		pace = result(err)
	}
	say(word, pace+",", strconv.FormatInt(took.Milliseconds(), 10), "ms")
}

// serve responds at a port of all addresses, or at an abstract socket ("@name"), for the given seconds.
func serve(at string, seconds int) {
	network := "unix"
	if !strings.HasPrefix(at, "@") {
		network, at = "tcp", ":"+at
	}
	l, err := net.Listen(network, at)
	say("listening", result(err))
	if err != nil {
		return
	}
	time.AfterFunc(time.Duration(seconds)*time.Second, func() { _ = l.Close() })
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "answered")
		_ = conn.Close()
	}
}

// scan connects to all ports of a range concurrently and prints how many are open.
func scan(at string, first, last int) {
	var found atomic.Int32
	var all sync.WaitGroup
	for port := first; port <= last; port++ {
		all.Go(func() {
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(at, strconv.Itoa(port)), askWithin)
			if err == nil {
				found.Add(1)
				_ = conn.Close()
			}
		})
	}
	all.Wait()
	say("open", strconv.Itoa(int(found.Load())))
}

// reconfigure tries to change its own link, neighbours and routes, as an attacker would to take
// over another address.
func reconfigure() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		say("link", result(err))
		return
	}
	for _, try := range []struct {
		name    string
		request uint
		fill    func(*unix.Ifreq)
	}{
		{"address", unix.SIOCSIFADDR, func(r *unix.Ifreq) { _ = r.SetInet4Addr([]byte{10, 213, 0, 99}) }},
		{"mtu", unix.SIOCSIFMTU, func(r *unix.Ifreq) { r.SetUint32(9000) }},
		{"queue", unix.SIOCSIFTXQLEN, func(r *unix.Ifreq) { r.SetUint32(1 << 20) }},
		{"hardware", unix.SIOCSIFHWADDR, func(r *unix.Ifreq) { r.SetUint16(unix.ARPHRD_ETHER) }},
		{"down", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(0) }},
	} {
		r, err := unix.NewIfreq("eth0")
		if err == nil {
			try.fill(r)
			err = unix.IoctlIfreq(fd, try.request, r)
		}
		say("link", try.name, result(err))
	}
	say("link neighbour", result(raw(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSARP, buffer(bigBuffer))()))
	say("link route", result(raw(unix.SYS_IOCTL, uintptr(fd), unix.SIOCADDRT, buffer(bigBuffer))()))
}

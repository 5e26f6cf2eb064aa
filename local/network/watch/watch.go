// Package watch tells when packet filters are changed, as the kernel tells it:
// another program's `nft flush ruleset` is noticed before it has ended.
package watch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Parts of the kernel's messages about packet filters (nfnetlink).
const (
	group     = 7  // of all changes of nftables
	subsystem = 10 // nftables

	newTable, deleteTable, newChain, deleteChain, newRule, deleteRule = 0, 2, 3, 5, 6, 8

	headers   = unix.NLMSG_HDRLEN + 4
	tableName = 1      // the attribute of each of these
	typeMask  = 0x3fff // without its flags
)

// Filters calls told with the name of each table that somebody took away or
// changed the rules of, until ctx ends; with "" where the kernel told more than
// could be read, so any may have been. It returns an error at once where this
// process may not listen: that needs CAP_NET_ADMIN.
func Filters(ctx context.Context, told func(table string)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	socket := os.NewFile(uintptr(fd), "nftables")
	defer socket.Close()
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (group - 1)}); err != nil {
		return fmt.Errorf("listen for changes of packet filters: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	for buffer := make([]byte, 1<<16); ; {
		n, err := socket.Read(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			told("")
		case err != nil:
			return err
		}
		for _, table := range tables(buffer[:n]) {
			told(table)
		}
	}
}

// tables returns the names of those that messages are about.
func tables(messages []byte) (names []string) {
	for len(messages) >= headers {
		length := int(binary.NativeEndian.Uint32(messages))
		kind := binary.NativeEndian.Uint16(messages[4:])
		if length < headers || length > len(messages) {
			return append(names, "")
		}
		switch {
		case kind>>8 != subsystem:
		default:
			switch kind & 0xff {
			case newTable, deleteTable, newChain, deleteChain, newRule, deleteRule:
				names = append(names, name(messages[headers:length]))
			}
		}
		messages = messages[min(len(messages), align(length)):]
	}
	return names
}

// name returns the table's in a message's attributes.
func name(attributes []byte) string {
	for len(attributes) >= unix.NLA_HDRLEN {
		length := int(binary.NativeEndian.Uint16(attributes))
		if length < unix.NLA_HDRLEN || length > len(attributes) {
			break
		}
		if binary.NativeEndian.Uint16(attributes[2:])&typeMask == tableName {
			text, _, _ := bytes.Cut(attributes[unix.NLA_HDRLEN:length], []byte{0})
			return string(text)
		}
		attributes = attributes[min(len(attributes), align(length)):]
	}
	return ""
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

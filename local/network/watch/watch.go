// Package watch reports changes of packet filters as the kernel reports them: for example, another
// program's `nft flush ruleset` is reported before that program has ended.
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

// Constants of the kernel's messages about packet filters (nfnetlink). headers is the size of a
// message's two headers, in bytes.
const (
	group     = 7  // multicast group of all changes of nftables
	subsystem = 10 // the subsystem nftables

	newTable, deleteTable, newChain, deleteChain, newRule, deleteRule = 0, 2, 3, 5, 6, 8

	headers   = unix.NLMSG_HDRLEN + 4
	tableName = 1      // attribute of the table's name in each of these messages
	typeMask  = 0x3fff // mask of an attribute's type, without flags
)

// Filters calls changed with the name of each table that was deleted or whose rules were changed,
// until ctx ends. It calls it with "" if messages were lost, so any table may have changed. Calls
// come from this goroutine. It returns an error immediately if this process lacks CAP_NET_ADMIN,
// which listening needs.
func Filters(ctx context.Context, changed func(table string)) error {
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
			changed("")
		case err != nil:
			return err
		}
		for _, table := range tables(buffer[:n]) {
			changed(table)
		}
	}
}

// tables returns the names of the tables in messages; "" for a malformed message.
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

// name returns the table's name in a message's attributes.
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

// align rounds a length up to where the next message or attribute begins.
func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

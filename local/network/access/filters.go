package access

import (
	"context"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// watchFilters calls changed with the name of each table that was deleted or whose rules were
// changed, until ctx ends. For example, another program's `nft flush ruleset` is reported before
// that program has ended. If messages were lost, any table may have changed, and the name is empty.
// Calls come from this goroutine. It returns an error immediately if this process lacks
// CAP_NET_ADMIN, which listening needs.
func watchFilters(ctx context.Context, changed func(table string)) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	if err != nil {
		return fmt.Errorf("listen for changes of packet filters: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	for {
		messages, err := conn.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			changed("")
		case err != nil:
			return err
		}
		for _, m := range messages {
			if table, is := changedTable(m); is {
				changed(table)
			}
		}
	}
}

// changedTable returns the table of a message about a table, chain or rule. The name is empty if the
// message is malformed, and so may be about any table.
func changedTable(m netlink.Message) (table string, is bool) {
	switch kind := int(m.Header.Type); kind - unix.NFNL_SUBSYS_NFTABLES<<8 {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_DELTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
	default:
		return "", false
	}
	const header = 4 // bytes of nfnetlink's own header before the attributes
	if len(m.Data) < header {
		return "", true
	}
	attributes, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return "", true
	}
	for attributes.Next() {
		if attributes.Type() == unix.NFTA_TABLE_NAME { // chains and rules have their table's name in the same attribute
			return attributes.String(), true
		}
	}
	return "", true
}

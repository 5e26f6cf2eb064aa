package access

import (
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

func message(kind int, attributes ...netlink.Attribute) netlink.Message {
	data, err := netlink.MarshalAttributes(attributes)
	if err != nil {
		panic(err)
	}
	return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind)}, Data: append(make([]byte, 4), data...)}
}

func TestChangedTable(t *testing.T) {
	const nftables = unix.NFNL_SUBSYS_NFTABLES << 8
	name := netlink.Attribute{Type: unix.NFTA_TABLE_NAME, Data: []byte("rockpool-a\x00")}
	other := netlink.Attribute{Type: unix.NFTA_TABLE_FLAGS, Data: []byte{0, 0, 0, 1}}
	cut := message(nftables|unix.NFT_MSG_DELTABLE, name)
	cut.Data = cut.Data[:len(cut.Data)-4]
	for _, test := range []struct {
		name    string
		message netlink.Message
		want    string
		is      bool
	}{
		{"a deleted table: its name", message(nftables|unix.NFT_MSG_DELTABLE, name), "rockpool-a", true},
		{"a new rule: its table's name", message(nftables|unix.NFT_MSG_NEWRULE, name), "rockpool-a", true},
		{"the name after another attribute: the name", message(nftables|unix.NFT_MSG_NEWCHAIN, other, name), "rockpool-a", true},
		{"a new set element: nothing", message(nftables|unix.NFT_MSG_NEWSETELEM, name), "", false},
		{"a message of another subsystem: nothing", message(1<<8|unix.NFT_MSG_DELTABLE, name), "", false},
		{"a message that is cut: any table", cut, "", true},
		{"a message without a name: any table", message(nftables|unix.NFT_MSG_DELTABLE, other), "", true},
		{"a message without data: any table", netlink.Message{Header: netlink.Header{Type: nftables | unix.NFT_MSG_DELTABLE}}, "", true},
	} {
		if got, is := changedTable(test.message); got != test.want || is != test.is {
			t.Errorf("%s: %q, %t, want %q, %t", test.name, got, is, test.want, test.is)
		}
	}
}

func FuzzChangedTable(f *testing.F) {
	f.Add(uint16(unix.NFNL_SUBSYS_NFTABLES<<8), message(0, netlink.Attribute{Type: unix.NFTA_TABLE_NAME, Data: []byte("rockpool")}).Data)
	f.Fuzz(func(_ *testing.T, kind uint16, data []byte) {
		changedTable(netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind)}, Data: data})
	})
}

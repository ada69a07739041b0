package published_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
)

func TestEncodeLastUses_WireFormat(t *testing.T) {
	uses := published.LastUses{
		ReadTime: issued.Add(2 * time.Hour), RecordingSince: issued.Add(-time.Hour),
		Keys: map[string]published.DigestUses{"abcdefgh2345": "00c0ffee 1795257000 1a2b3c4d 1795253400", "bcdefgh23456": ""},
	}
	configMap, err := published.EncodeLastUses(credentials, 3, uses)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"version":1,"readTime":1795260600,"recordingSince":1795249800,` +
		`"uses":{"abcdefgh2345":"00c0ffee 1795257000 1a2b3c4d 1795253400","bcdefgh23456":""}}`
	if configMap.Name != "last-uses-3" || configMap.Labels[published.Label] != "last-use" || configMap.Data["uses.json"] != want {
		t.Errorf("the ConfigMap is %+v", configMap)
	}
	decoded, err := published.DecodeLastUses(configMap)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(uses, decoded); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestDecodeLastUses_Invalid(t *testing.T) {
	for text, newer := range map[string]bool{
		"": false, "{": false, `{"version":1,"uses":{"no id":""}}`: false,
		`{"version":1,"uses":{"abcdefgh2345":"00c0ffee"}}`: false, `{"version":1,"uses":{"abcdefgh2345":"00c0ffee 0"}}`: false,
		`{"version":1,"uses":{"abcdefgh2345":"00c0ffe 1"}}`: false, `{"version":1,"uses":{"abcdefgh2345":"00C0FFEE 1"}}`: false,
		`{"version":1,"uses":{"abcdefgh2345":1}}`: false, `{"version":2,"uses":[]}`: true,
	} {
		configMap, err := published.EncodeLastUses(credentials, 0, published.LastUses{})
		if err != nil {
			t.Fatal(err)
		}
		configMap.Data["uses.json"] = text
		_, err = published.DecodeLastUses(configMap)
		if !errors.Is(err, published.ErrInvalid) || errors.Is(err, published.ErrNewerVersion) != newer {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDigestUses_Last(t *testing.T) {
	digest, other := apikey.Digest{0x00, 0xc0, 0xff, 0xee, 1}, apikey.Digest{0x1a, 0x2b, 0x3c, 0x4d, 2}
	uses := published.DigestUses("00c0ffee 1795253400")
	if got := uses.Last(digest); !got.Equal(issued) {
		t.Errorf("last used at %s, want %s", got, issued)
	}
	if got := uses.Last(other); !got.IsZero() {
		t.Errorf("a digest that was not used: %s", got)
	}
	if got := uses.CompleteSince(); !got.IsZero() {
		t.Errorf("a list with room is complete since %s", got)
	}
}

func TestDigestUses_Merge(t *testing.T) {
	for name, test := range map[string]struct {
		mine, theirs, want published.DigestUses
		changed            bool
	}{
		"the same":                {"aaaaaaaa 1000", "aaaaaaaa 1000", "aaaaaaaa 1000", false},
		"nothing new":             {"aaaaaaaa 1000", "", "aaaaaaaa 1000", false},
		"the first use":           {"", "aaaaaaaa 1000", "aaaaaaaa 1000", true},
		"a use within the step":   {"aaaaaaaa 1000", "aaaaaaaa 1599", "aaaaaaaa 1599", false},
		"a use after the step":    {"aaaaaaaa 1000", "aaaaaaaa 1600", "aaaaaaaa 1600", true},
		"an older use":            {"aaaaaaaa 1600", "aaaaaaaa 1000", "aaaaaaaa 1600", false},
		"the use of another key":  {"aaaaaaaa 1000", "bbbbbbbb 1100", "bbbbbbbb 1100 aaaaaaaa 1000", true},
		"Redis has lost the list": {"bbbbbbbb 1100 aaaaaaaa 1000", "aaaaaaaa 1900", "aaaaaaaa 1900 bbbbbbbb 1100", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, changed := test.mine.Merge(test.theirs, 10*time.Minute)
			if got != test.want || changed != test.changed {
				t.Errorf("%q, changed %v; want %q, %v", got, changed, test.want, test.changed)
			}
		})
	}
}

// A full list does not say that a digest which is not in it was never used.
func TestDigestUses_Full(t *testing.T) {
	var uses published.DigestUses
	for i := range published.MaxDigestUses + 3 {
		uses, _ = uses.Merge(published.DigestUses(fmt.Sprintf("%08x %d", i, 1000+i)), time.Minute)
	}
	if n := len(strings.Fields(string(uses))) / 2; n != published.MaxDigestUses {
		t.Errorf("%d digests, want the latest %d", n, published.MaxDigestUses)
	}
	if got := uses.CompleteSince(); got.Unix() != 1003 {
		t.Errorf("complete since %d, want the oldest that is listed", got.Unix())
	}
	if got := uses.Latest(); got.Unix() != int64(1000+published.MaxDigestUses+2) {
		t.Errorf("the latest use is at %d", got.Unix())
	}
}

// No number of keys makes a ConfigMap that the API server refuses. All of 100,000 keys are in one, with as many digests as a record can have,
// and all of a million with two.
func TestEncodeLastUses_Size(t *testing.T) {
	most := published.DigestUses("")
	for i := range published.MaxDigestUses {
		most, _ = most.Merge(published.DigestUses(fmt.Sprintf("%08x %d", i, 1795253400+i)), time.Minute)
	}
	shards := make([]map[string]published.DigestUses, published.LastUseShards)
	for i := range 100_000 {
		keyID := published.ID(types.UID(strconv.Itoa(i)))
		shard := published.LastUseShard(keyID)
		if shards[shard] == nil {
			shards[shard] = map[string]published.DigestUses{}
		}
		shards[shard][keyID] = most
	}
	largest := 0
	for shard, keys := range shards {
		kept, size := encodeUses(t, shard, keys)
		largest = max(largest, size)
		if len(kept) != len(keys) {
			t.Errorf("shard %d has %d of its %d keys", shard, len(kept), len(keys))
		}
	}
	t.Logf("the largest ConfigMap of 100,000 keys has %d bytes", largest)

	share := map[string]published.DigestUses{}
	for i := range 1_000_000 / published.LastUseShards * 21 / 20 {
		share[published.ID(types.UID(strconv.Itoa(i)))] = "00c0ffee 1795257000 1a2b3c4d 1795253400"
	}
	if kept, size := encodeUses(t, 0, share); len(kept) != len(share) {
		t.Errorf("%d of %d keys are in %d bytes", len(kept), len(share), size)
	}
}

// What does not fit is left out, the keys with the oldest uses first, so that nothing is known of them.
func TestEncodeLastUses_TooManyKeys(t *testing.T) {
	crowded := map[string]published.DigestUses{}
	for i := range 60_000 {
		crowded[published.ID(types.UID(strconv.Itoa(i)))] = published.DigestUses(fmt.Sprintf("00c0ffee %d", 1795253400+i))
	}
	kept, _ := encodeUses(t, 0, crowded)
	var oldestKept, latestLeft time.Time
	for keyID, uses := range crowded {
		switch _, there := kept[keyID]; {
		case there && (oldestKept.IsZero() || uses.Latest().Before(oldestKept)):
			oldestKept = uses.Latest()
		case !there && uses.Latest().After(latestLeft):
			latestLeft = uses.Latest()
		}
	}
	if len(kept) == len(crowded) || !latestLeft.Before(oldestKept) {
		t.Errorf("%d keys are kept; a use at %s was left out, and one at %s was kept", len(kept), latestLeft, oldestKept)
	}
}

func encodeUses(t *testing.T, shard int, keys map[string]published.DigestUses) (map[string]published.DigestUses, int) {
	t.Helper()
	configMap, err := published.EncodeLastUses(credentials, shard, published.LastUses{ReadTime: issued, RecordingSince: issued, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	size := len(configMap.Data["uses.json"])
	if size > 1<<20-10_000 { // with room for metadata
		t.Errorf("%d keys take %d bytes", len(keys), size)
	}
	decoded, err := published.DecodeLastUses(configMap)
	if err != nil {
		t.Fatal(err)
	}
	return decoded.Keys, size
}

package published_test

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
)

func TestLastUsesKeepTheirWireFormat(t *testing.T) {
	uses := map[string]time.Time{"abcdefgh2345": issued, "bcdefgh23456": issued.Add(time.Hour)}
	configMap, err := published.EncodeLastUses(credentials, 3, uses)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"version":1,"uses":{"abcdefgh2345":1795253400,"bcdefgh23456":1795257000}}`
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

func TestLastUsesThatCannotBeRead(t *testing.T) {
	for text, newer := range map[string]bool{
		"": false, "{": false, `{"version":1,"uses":{"no id":1}}`: false, `{"version":1,"uses":{"abcdefgh2345":0}}`: false,
		`{"version":2,"uses":[]}`: true,
	} {
		configMap, err := published.EncodeLastUses(credentials, 0, nil)
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

// A million keys fit, and no number of keys makes a ConfigMap that the API server refuses. The latest uses are kept.
func TestEncodeLastUses_Size(t *testing.T) {
	const maximum = 1 << 20
	many := func(n int) map[string]time.Time {
		uses := map[string]time.Time{}
		for i := range n {
			uses[published.ID(types.UID(strconv.Itoa(i)))] = issued.Add(time.Duration(i) * time.Second)
		}
		return uses
	}
	share := many(1_000_000 / published.LastUseShards * 21 / 20)
	if got := encodedUses(t, 0, share, maximum); len(got) != len(share) {
		t.Errorf("%d of %d last uses are in a ConfigMap", len(got), len(share))
	}
	crowded := many(60_000)
	left := encodedUses(t, 0, crowded, maximum)
	oldest := slices.MinFunc(slices.Collect(maps.Values(left)), time.Time.Compare)
	for keyID, used := range crowded {
		if _, kept := left[keyID]; !kept && used.After(oldest) {
			t.Fatalf("a use at %s was left out, and one at %s was kept", used, oldest)
		}
	}
}

func encodedUses(t *testing.T, shard int, uses map[string]time.Time, maximum int) map[string]time.Time {
	t.Helper()
	configMap, err := published.EncodeLastUses(credentials, shard, uses)
	if err != nil {
		t.Fatal(err)
	}
	if size := len(configMap.Data["uses.json"]); size > maximum {
		t.Errorf("%d last uses take %d bytes", len(uses), size)
	}
	decoded, err := published.DecodeLastUses(configMap)
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

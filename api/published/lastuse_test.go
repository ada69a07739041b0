package published_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

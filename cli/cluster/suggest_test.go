package cluster

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"acme-coffee", "acme-tea", "blue-bakery", "b"}
	for desc, test := range map[string]struct{ typed, want string }{
		"a letter is missing":      {"acme-cofee", "acme-coffee"},
		"two letters are swapped":  {"acme-cofefe", "acme-coffee"},
		"a letter too many":        {"blue-bakeryy", "blue-bakery"},
		"another letter":           {"acme-tee", "acme-tea"},
		"something else":           {"corner-kiosk", ""},
		"everything is different":  {"a", ""},
		"longer than all of them":  {"acme-coffee-and-much-more-than-that", ""},
		"nothing typed, in effect": {"-", ""},
	} {
		if got := nearest(test.typed, names); got != test.want {
			t.Errorf("%s: %q, want %q", desc, got, test.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"kitten", "sitting", 3},
		{"ab", "ba", 1},
		{"acme", "acme", 0},
	} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("from %q to %q: %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

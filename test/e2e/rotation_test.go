//go:build e2e

package e2e_test

import (
	"encoding/json"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// rotatesEverywhere asks each replica by its own address, at once after the answer, several times over.
func rotatesEverywhere(ctx SpecContext) {
	const rounds = 10
	key := world.apply(ctx, "rotation")
	replicas := world.replicas(ctx, Default)
	Expect(replicas).To(HaveLen(3))
	for round := range rounds {
		fresh := rotate(ctx, replicas[round%len(replicas)], key)
		for _, url := range replicas {
			Expect(till.read(ctx, url, key, "/api/v1/merchant/me").Status).To(Equal(http.StatusUnauthorized), "%s takes the old key", url)
			Expect(till.read(ctx, url, fresh, "/api/v1/merchant/me").Status).To(Equal(http.StatusOK), "%s refuses the new key", url)
		}
		key = fresh
	}
	proved("%d rotations, each seen by %d replicas at once", rounds, len(replicas))
}

// rotate replaces a key through the API, and returns the new one.
func rotate(ctx SpecContext, url, key string) string {
	GinkgoHelper()
	got := till.post(ctx, url, key, "/api/v1/keys/rotate", "")
	Expect(got.Status).To(Equal(http.StatusOK), "%+v", got)
	var answer struct {
		FullKey string `json:"fullKey"`
	}
	Expect(json.Unmarshal([]byte(got.Body), &answer)).To(Succeed())
	return answer.FullKey
}

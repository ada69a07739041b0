package controllers

import (
	"math"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// anyClock lets a test move the operator's clock, as if time had passed for the API server too.
const anyClock = time.Duration(math.MaxInt64)

// clockDifference is what the metric says, in seconds.
func clockDifference() float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() == "merchant_operator_clock_difference_seconds" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}

var _ = Describe("An operator whose clock is not that of the API server", func() {
	const day = 24 * time.Hour
	guarded := func(o *Options) { o.maxClockDifference = DefaultOptions().maxClockDifference }

	It("ends and deletes nothing because of the time, says so, and goes on when the clock is right", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		overlapping := f.key(aKey("overlapping", "coffee").overlap(time.Hour))
		change(f, overlapping, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(overlapping, 2)
		scheduled := f.key(aKey("scheduled", "coffee").every(day))
		retained := f.key(aKey("retained", "coffee").retained(time.Hour))
		gone := f.key(aKey("gone", "coffee"))
		f.delete(gone.DeepCopy())
		f.awaitGone(gone.DeepCopy())
		before := f.record(overlapping).Previous
		Expect(before).To(HaveLen(1))
		f.stop()

		f.clock.advance(100 * day)
		seen := passes("tombstone")
		f.startOperator(guarded)
		Eventually(f.logs.String).Should(ContainSubstring("stopped all work that depends on the time"))
		Expect(clockDifference()).To(BeNumerically("~", (100 * day).Seconds(), 60))
		for _, key := range []*v1alpha1.ApiKey{overlapping, scheduled, retained} {
			f.poke(key, "apikey")
		}
		Eventually(func() int { return passes("tombstone") }).Should(BeNumerically(">", seen))
		Expect(f.record(overlapping).Previous).To(Equal(before))
		Expect(f.record(scheduled).Generation).To(BeEquivalentTo(1))
		Expect(f.secret(f.namespace, "retained-key")).NotTo(BeNil())
		Expect(f.tombstones()).To(ConsistOf(published.KeyTombstoneName(published.ID(gone.UID))))

		By("rotating by trigger, with the time of the API server")
		change(f, overlapping, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "c" })
		record := f.awaitGeneration(overlapping, 3)
		Expect(record.Previous).To(HaveLen(2), "the earlier overlap goes on")
		Expect(record.Previous[0].ValidUntil).To(BeTemporally("~", time.Now().Add(time.Hour), 2*time.Minute))

		By("going on with the right clock")
		f.stop()
		f.startOperator() // for which 100 days have passed
		f.awaitGeneration(scheduled, 2)
		f.awaitNoSecret("retained-key")
		Eventually(f.tombstones).Should(BeEmpty())
		Eventually(func() []published.Previous { return f.record(overlapping).Previous }).Should(BeEmpty())
	})

	It("keeps an ended overlap in the record for a while, and not in the status", func() {
		f := newFixture()
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee").overlap(time.Hour))
		old := f.delivered("till-key")
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
		f.clock.advance(time.Hour + time.Minute)
		f.poke(key, "apikey")
		Eventually(func() []v1alpha1.PreviousKey { f.read(key); return key.Status.PreviousKeys }).Should(BeEmpty())
		Expect(f.record(key).Previous).To(HaveLen(1), "for readers whose clocks are behind")
		Expect(f.live(f.record(key), old)).To(BeFalse())
		f.clock.advance(10 * time.Minute)
		f.poke(key, "apikey")
		Eventually(func() []published.Previous { return f.record(key).Previous }).Should(BeEmpty())
	})
})

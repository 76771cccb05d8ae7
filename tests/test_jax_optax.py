"""`hoyer.jax`: trees of parameters, and steps of optax that keep a sparseness."""

import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
import jax.numpy as jnp  # noqa: E402 - only with JAX

import hoyer  # noqa: E402
from hoyer.jax import keep_sparseness, project_together, projection_sparseness  # noqa: E402

RNG = np.random.default_rng(5)
EPS = float(np.finfo(np.float32).eps)


def tree(dtype=jnp.float32):
    return {
        "first": {"w": jnp.asarray(RNG.standard_normal((6, 40)), dtype), "b": jnp.ones(6, dtype)},
        "last": [jnp.asarray(RNG.standard_normal((3, 6)), dtype)],
    }


def matrices(params):
    return jax.tree.map(lambda w: w.ndim > 1, params)


def same(a, b):
    return all(jax.tree.leaves(jax.tree.map(lambda x, y: bool((x == y).all()), a, b)))


# ---- trees ----


def test_leaf_by_leaf():
    params = tree()
    found = projection_sparseness(params, 0.7, mask=matrices)
    assert jax.tree.structure(found) == jax.tree.structure(params)
    assert same(found["first"]["w"], hoyer.project(params["first"]["w"], 0.7, l2="keep"))
    assert same(found["last"][0], hoyer.project(params["last"][0], 0.7, l2="keep"))
    assert same(found["first"]["b"], params["first"]["b"])
    # A prefix of the tree, and a function of leaves.
    other = projection_sparseness(params, 0.7, mask={"first": False, "last": True}, axis=None)
    assert same(other["first"], params["first"])
    assert same(other["last"][0], hoyer.project(params["last"][0], 0.7, l2="keep", axis=None))
    units = projection_sparseness(params, 0.7, mask=matrices, axis=lambda w: w.ndim - 2)
    assert same(units["last"][0], hoyer.project(params["last"][0], 0.7, l2="keep", axis=0))
    assert same(
        projection_sparseness(params["first"]["w"], l1=3.0, l2=1.0),
        hoyer.project(params["first"]["w"], l1=3.0, l2=1.0),
    )
    assert same(
        projection_sparseness(params["first"]["w"], 0.5, l1=3.0),
        hoyer.project(params["first"]["w"], 0.5, l1=3.0),
    )


def test_the_whole_tree_as_one_vector():
    params = tree()
    found = projection_sparseness(params, 0.8, axis="tree", l2=2.0)
    flat, _ = jax.flatten_util.ravel_pytree(params)
    assert same(jax.flatten_util.ravel_pytree(found)[0], hoyer.project(flat, 0.8, l2=2.0))


def test_as_optax_projects():
    """Where sets agree results do: the L1 ball, and the simplex, of a tree."""
    with jax.enable_x64(False):
        _agrees_with_optax(tree())


def _agrees_with_optax(params):
    ours = projection_sparseness(params, l1=5.0, l2=None, at_most=True, axis="tree")
    theirs = optax.projections.projection_l1_ball(params, jnp.float32(5.0))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    ours = projection_sparseness(params, l1=5.0, l2=None, nonnegative=True, axis="tree")
    theirs = optax.projections.projection_simplex(params, jnp.float32(5.0))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_compiled_and_differentiated():
    params = tree()
    run = jax.jit(lambda params, s: projection_sparseness(params, s, mask=matrices))
    target = jnp.float32(0.6)
    assert same(run(params, target), projection_sparseness(params, target, mask=matrices))
    gradient = jax.grad(lambda s: jnp.sum(run(params, s)["last"][0] ** 3))(0.6)
    assert np.isfinite(gradient)
    assert gradient != 0


def test_what_is_refused():
    params = tree()
    with pytest.raises(ValueError, match="the only word for it is 'tree'"):
        projection_sparseness(params, 0.5, axis="leaf")
    with pytest.raises(TypeError, match="give True or False for each leaf"):
        projection_sparseness(params, 0.5, mask=0.5)
    params["first"]["w"] = params["first"]["w"].at[1, 2].set(jnp.nan)
    with pytest.raises(ValueError, match=r"params\['first'\]\['w'\] has nan"):
        projection_sparseness(params, 0.5, mask=matrices)
    with pytest.raises(ValueError, match=r"params\['first'\]\['w'\] has nan at .*\(1, 2\)"):
        projection_sparseness(params, 0.5, axis="tree")
    with pytest.raises(ValueError, match=r"sparseness must lie in \[0, 1\], got 1\.5"):
        projection_sparseness(tree(), 1.5, axis="tree")


def test_together():
    params = tree()
    found = project_together(params, 0.6, mask=matrices, axis=None)
    weights = [params["first"]["w"], params["last"][0]]
    alone = hoyer.project_together(weights, 0.6)
    assert same([found["first"]["w"], found["last"][0]], alone)
    assert same(found["first"]["b"], params["first"]["b"])
    shares = [float(hoyer.sparseness(w, axis=None)) for w in alone]
    assert np.mean(shares) == pytest.approx(0.6, abs=1e-6)
    axes = {"first": {"w": -1, "b": -1}, "last": [None]}
    rows = project_together(params, 0.6, mask=matrices, axis=axes)
    assert same(
        [rows["first"]["w"], rows["last"][0]],
        hoyer.project_together(weights, 0.6, axis=[-1, None]),
    )
    with pytest.raises(TypeError, match="which traced code cannot do"):
        jax.jit(lambda params: project_together(params, 0.6))(params)
    with pytest.raises(TypeError, match="JAX arrays cannot be changed"):
        project_together(params, 0.6, out=params)


# ---- steps ----


def loss(params):
    hidden = params["first"]["w"] @ jnp.ones(40) + params["first"]["b"]
    return jnp.sum((params["last"][0] @ jnp.tanh(hidden)) ** 2)


def trained(params, transformation, steps, optimizer=None):
    """Return the parameters after each step."""
    chain = optax.chain(optimizer or optax.sgd(0.05), transformation)
    state = chain.init(params)

    @jax.jit
    def step(params, state):
        updates, state = chain.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    history = []
    for _ in range(steps):
        params, state = step(params, state)
        history.append(params)
    return history, state


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_steps_end_on_the_set(dtype):
    params = tree(dtype)
    before, _ = trained(params, optax.identity(), 1)
    (after,), _ = trained(params, keep_sparseness(0.75), 1)
    assert jax.tree.map(lambda x: x.dtype, after) == jax.tree.map(lambda x: x.dtype, params)
    wanted = projection_sparseness(before[0], 0.75, mask=matrices)
    assert same(after["first"]["b"], wanted["first"]["b"])
    for old, new, exact in (
        (params["first"]["w"], after["first"]["w"], wanted["first"]["w"]),
        (params["last"][0], after["last"][0], wanted["last"][0]),
    ):
        assert same(new == 0, exact == 0)
        if dtype != "float32":
            assert same(new, exact)
        far = np.maximum(abs(old), abs(exact - old)).astype(np.float32)
        assert (abs(np.asarray(new - exact, np.float32)) <= far * EPS).all()


def test_a_schedule_with_warmup():
    params = tree()
    schedule = optax.linear_schedule(0.2, 0.9, 4)
    transformation = keep_sparseness(schedule, warmup=2, every=2)
    history, state = trained(params, transformation, 8, optax.adam(1e-3))
    plain, _ = trained(params, optax.identity(), 2, optax.adam(1e-3))
    for a, b in zip(jax.tree.leaves(history[1]), jax.tree.leaves(plain[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert int(state[1].count) == 8
    reached = [float(hoyer.sparseness(p["first"]["w"]).min()) for p in history]
    # Steps 4 and 6 are the second and the fourth after the warm-up.
    assert reached[3] == pytest.approx(float(schedule(2)), abs=1e-5)
    assert reached[5] == pytest.approx(0.9, abs=1e-5)
    assert not same(history[6], projection_sparseness(history[6], 0.9, mask=matrices))


def test_only_increase_comes_with_a_schedule():
    params = projection_sparseness(tree(), 0.9, mask=matrices)
    still = optax.set_to_zero()
    for given, least in (({}, 0.9), ({"only_increase": False}, 0.3)):
        transformation = keep_sparseness(optax.constant_schedule(0.3), **given)
        (after,), _ = trained(params, transformation, 1, still)
        assert float(hoyer.sparseness(after["first"]["w"]).min()) == pytest.approx(least, abs=1e-5)


def test_a_falling_schedule_has_to_be_meant():
    falling = optax.linear_schedule(0.9, 0.3, 4)
    with pytest.raises(ValueError, match=r"falls, from 0\.75 at step 1 .* only_increase=False"):
        keep_sparseness(falling)
    with pytest.raises(ValueError, match="falls"):
        keep_sparseness(optax.piecewise_constant_schedule(0.9, {40_000: 0.5}))
    params, still = tree(), optax.set_to_zero()
    for only_increase, reached in ((False, [0.75, 0.6, 0.45]), (True, [0.75, 0.75, 0.75])):
        transformation = keep_sparseness(falling, only_increase=only_increase)
        history, _ = trained(params, transformation, 3, still)
        found = [float(hoyer.sparseness(p["first"]["w"]).mean()) for p in history]
        assert found == pytest.approx(reached, abs=1e-5)
    # Where nobody can look, nothing is said.
    jax.jit(lambda s: keep_sparseness(lambda step: s - step).init(params))(0.5)


def test_masks_of_optax_and_of_ours():
    params = tree()
    which = {"first": {"w": True, "b": False}, "last": [False]}
    ours, _ = trained(params, keep_sparseness(0.8, mask=which), 2)
    theirs, _ = trained(params, optax.masked(keep_sparseness(0.8), which), 2)
    assert same(ours[-1], theirs[-1])
    every, _ = trained(params, keep_sparseness(0.8, mask=lambda params: True, axis=-1), 1)
    assert float(hoyer.sparseness(every[0]["first"]["b"])) == pytest.approx(0.8, abs=1e-5)


def test_errors_come_before_the_training():
    params = tree()
    with pytest.raises(ValueError, match="sparseness"):
        keep_sparseness(1.5)
    for given in ({}, {"l2": 1.0}):
        with pytest.raises(ValueError, match="keep_sparseness needs a target"):
            keep_sparseness(**given)
    with pytest.raises(ValueError, match="every=0: must be an integer, at least 1"):
        keep_sparseness(0.5, every=0)
    with pytest.raises(TypeError, match=r"warmup=1\.5: must be an integer"):
        keep_sparseness(0.5, warmup=1.5)
    with pytest.raises(ValueError, match="no leaf of params is to be projected"):
        keep_sparseness(0.5).init({"b": jnp.ones(3)})
    with pytest.raises((ValueError, IndexError), match="axis"):
        keep_sparseness(0.5, axis=7).init(params)
    transformation = keep_sparseness(0.5)
    with pytest.raises(ValueError, match=r"optimizer\.update\(gradients, state, params\)"):
        transformation.update(params, transformation.init(params))


def test_without_optax(monkeypatch):
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(ImportError, match="pip install optax"):
        keep_sparseness(0.5)


def test_a_schedule_beyond_its_range_gives_nan():
    (after,), _ = trained(tree(), keep_sparseness(lambda step: 1.0 + step), 1)
    assert bool(jnp.isnan(after["first"]["w"]).all())


# ---- as the projection of others ----


def test_projected_gradient_of_jaxopt():
    jaxopt = pytest.importorskip("jaxopt")
    x = jnp.asarray(RNG.standard_normal(30), jnp.float32)
    solver = jaxopt.ProjectedGradient(
        lambda w: jnp.sum((w - x) ** 2),
        lambda w, sparseness: projection_sparseness(w, sparseness, l2="nearest"),
        stepsize=0.5,
        maxiter=5,
        acceleration=False,
        implicit_diff=False,
    )
    found = solver.run(jnp.ones(30), hyperparams_proj=0.8).params
    np.testing.assert_allclose(found, hoyer.project(x, 0.8, l2="nearest"), atol=1e-5)


def test_integers_are_no_parameters():
    params = {"w": jnp.asarray(RNG.standard_normal((4, 8))), "i": jnp.arange(8).reshape(2, 4)}
    for axis in (-1, "tree"):
        with pytest.raises(TypeError, match=r"params\['i'\] has dtype int.*mask"):
            projection_sparseness(params, 0.7, axis=axis)
    step = keep_sparseness(0.7)
    updates, _ = step.update(jax.tree.map(jnp.zeros_like, params), step.init(params), params)
    assert updates["i"].dtype == params["i"].dtype
    assert not updates["i"].any()


def test_words_of_the_user_stay():
    with pytest.raises(ValueError, match="l2='x'"):
        projection_sparseness({"w": jnp.ones((2, 4))}, 0.5, l2="x")

"""The claims about capsules from the lectures and of the critics, each with its comparisons."""

from __future__ import annotations

from torchcaps.experiments.lecture_claims import Cell, Comparison, LectureClaim, add_claim, between

# What capsules are compared with, if nothing else is stated.
_CONTROL = "the same convolutions and decoder, and as many weights without capsules"
_POSE, _HIDDEN = "pose of the class", "features before the scores"
add_claim(
    LectureClaim(
        name="separation",
        statement="Pose and presence are separated: the pose encodes the viewpoint.",
        protocol="pose: R2 of known shifts, angles and scales of MNIST digits",
        recipe="torchcaps eval RUN --protocol pose",
        control="features of a CNN before its scores",
        comparisons=tuple(
            Comparison(
                f"R2 of {factor}",
                Cell("protocol:pose", "mnist_dynamic", f"{_POSE} / {factor}"),
                Cell("protocol:pose", "mnist_cnn", f"{_HIDDEN} / {factor}"),
                images=0,
            )
            for factor in ("angle", "scale", "shear", "shift right", "shift down")
        ),
        caveat="One network of each kind; the CNN has half of the parameters.",
    )
)
add_claim(
    LectureClaim(
        name="picasso",
        statement="Parts in wrong places do not make a whole.",
        protocol="picasso: share of scrambled images accepted as wholes, where 95 % of the whole ones are accepted",
        recipe="torchcaps reproduce picasso",
        control=_CONTROL,
        comparisons=tuple(
            between("picasso", f"CapsNet, {what}", f"CNN, {what}", "false wholes", images, name=f"false wholes, {what}")
            for what, images in (("faces", 4_000), ("digits", 10_000), ("clothes", 10_000))
        ),
        figure="reproduce-picasso-picasso.png",
        caveat="Small networks, minutes of training; a whole is accepted by its largest activation.",
    )
)
add_claim(
    LectureClaim(
        name="viewpoints",
        statement="New viewpoints need no new data.",
        protocol="viewpoints: error on new azimuths and elevations of smallNORB",
        recipe="torchcaps reproduce viewpoints, viewpoints_coil20, viewpoints_eth80",
        control="smallNORB: the CNN of Hinton et al. 2018, with 62 times as many parameters; else the same "
        "convolutions and as many weights without capsules",
        comparisons=tuple(
            between("viewpoints", f"Matrix capsules, {kind}", f"CNN, {kind}", "novel error", images)
            for kind, images in (("azimuth", 6_480), ("elevation", 16_200))
        )
        + tuple(
            between(f"viewpoints_{name}", "CapsNet", "CNN", "novel error", images, name=title)
            for name, title, images in (("coil20", "COIL-20", 700), ("eth80", "ETH-80", 304))
        ),
        caveat="smallNORB not at matched error on familiar viewpoints, and with few epochs.",
        further=("viewpoints_matched",),
    )
)
add_claim(
    LectureClaim(
        name="data_efficiency",
        statement="Capsules need less data.",
        protocol="test error after training on 10 to 5,000 images of each class",
        recipe="torchcaps reproduce data_efficiency_mnist, data_efficiency_fashion, data_efficiency_cifar",
        control=_CONTROL,
        comparisons=tuple(
            between(
                f"data_efficiency_{data}",
                f"CapsNet, {count} per class",
                f"CNN, {count} per class",
                "error",
                10_000,
                name=f"{title}, {count} per class",
            )
            for data, title in (("mnist", "MNIST"), ("fashion", "Fashion-MNIST"), ("cifar", "CIFAR-10"))
            for count in (10, 20, 50, 100, 500, 4900 if data == "cifar" else 5000)
        ),
        caveat="One small budget for all numbers of images.",
    )
)
add_claim(
    LectureClaim(
        name="overlap",
        statement="Overlapping objects are segmented.",
        protocol="overlap: both digits of MultiMNIST correct",
        recipe="torchcaps reproduce multimnist, overlap_curve",
        control="MultiMNIST: a CNN with half of the parameters and a fifth of the time; small digits: the same "
        "convolutions and as many weights without capsules",
        comparisons=(
            between("multimnist", "Residual CapsNet, self-attention, reconstruction", "CNN", "both correct", 10_000),
            *(
                between("overlap_curve", "CapsNet", "CNN", column, images, name=f"small digits, {column}")
                for column, images in (
                    ("error, overlap 0% to 10%", 1_900),
                    ("error, overlap 20% to 40%", 2_200),
                    ("error, overlap 40% to 60%", 1_600),
                    ("error, overlap 60% to 80%", 1_000),
                    ("error, overlap 80% to 100%", 500),
                )
            ),
            between(
                "multimnist",
                "Residual CapsNet, self-attention, reconstruction",
                "CNN, as many parameters and as much time",
                "both correct",
                10_000,
            ),
        ),
        figure="reproduce-multimnist-reconstructions.png",
        caveat="On MultiMNIST the first control is smaller and was trained for a shorter time.",
    )
)
add_claim(
    LectureClaim(
        name="affine",
        statement="Affine changes are withstood.",
        protocol="affine: trained on translated digits, tested on affine ones, at matched accuracy",
        recipe="torchcaps reproduce affine",
        control="a CNN, and a CNN with global average pooling",
        comparisons=(
            between("affine", "CapsNet", "CNN", "accuracy on affine_mnist", 10_000),
            between(
                "affine",
                "Matrix capsules, EM routing",
                "CNN with global average pooling",
                "accuracy on affine_mnist",
                10_000,
            ),
            between("affine", "CapsNet", "CNN with global average pooling", "accuracy on affine_mnist", 10_000),
        ),
        figure="reproduce-affine-affine_predictions.png",
        further=("affine_matched",),
    )
)
add_claim(
    LectureClaim(
        name="crowding",
        statement="Two identical objects close together cannot both be seen.",
        protocol="crowding: share of pairs of digits of which both are decoded, by their distance",
        recipe="torchcaps reproduce crowding",
        control="two different digits at the same distance, and the same convolutions and decoder without capsules",
        comparisons=tuple(
            Comparison(
                f"{label}, different against identical, {distance}",
                Cell("crowding", label, f"different, both seen, {distance}"),
                Cell("crowding", label, f"identical, both seen, {distance}"),
                images,
            )
            for label in ("CapsNet",)
            for distance, images in (("1 to 3 pixels", 1_000), ("4 to 6 pixels", 1_000), ("10 to 14 pixels", 1_600))
        ),
        figure="reproduce-crowding-crowding.png",
        caveat="The claim is met where different digits are seen more often than identical ones. Identical digits are "
        "one decoding and different ones two, which must both succeed.",
    )
)
add_claim(
    LectureClaim(
        name="iterations",
        statement="More routing iterations help, then overfit.",
        protocol="test error by number of iterations",
        recipe="torchcaps reproduce smallnorb_iterations, cifar_iterations, mnist_table1",
        control="the same network with another number of iterations",
        comparisons=(
            between("smallnorb_iterations", "2 iterations", "1 iteration", "error", 24_300),
            between("smallnorb_iterations", "2 iterations", "3 iterations", "error", 24_300),
            between("cifar_iterations", "3 iterations", "1 iteration", "error", 10_000, name="CIFAR-10: 3 against 1"),
            between(
                "mnist_table1",
                "CapsNet, 3 iterations, reconstruction",
                "CapsNet, 1 iteration, reconstruction",
                "error",
                10_000,
                name="MNIST: 3 against 1",
            ),
        ),
        figure="reproduce-cifar_iterations-training_loss.png",
        caveat="The smallNORB numbers are those of five epochs with an earlier recipe, whose gradients were noise from "
        "three iterations on; they tell nothing about overfitting.",
        further=("smallnorb_pairs", "cifar_iterations_long", "mnist_table1_full"),
    )
)
add_claim(
    LectureClaim(
        name="reconstruction",
        statement="Reconstruction regularises.",
        protocol="test error with and without reconstruction",
        recipe="torchcaps reproduce mnist_table1",
        control="the same network without a decoder",
        comparisons=tuple(
            between(
                "mnist_table1",
                f"CapsNet, {iters}, reconstruction",
                f"CapsNet, {iters}, no reconstruction",
                "error",
                10_000,
            )
            for iters in ("1 iteration", "3 iterations")
        ),
        figure="reproduce-mnist_table1-reconstructions.png",
        further=("mnist_table1_full",),
    )
)
add_claim(
    LectureClaim(
        name="synchronisation",
        statement="Synchronisation may do what routing does.",
        protocol="binding: division of the pixels of two overlapping shapes, 100 times the adjusted Rand index",
        recipe="torchcaps reproduce binding",
        control="capsules on the same data, divided by their decodings",
        comparisons=tuple(
            between("binding", label, "CapsNet", "ARI", 0)
            for label in ("Kuramoto oscillators", "Complex-valued network", "Decoupled network")
        ),
        figure="reproduce-binding-binding.png",
        caveat="Networks of phases are trained to name the shapes, not to divide them; capsules also to reconstruct.",
    )
)
add_claim(
    LectureClaim(
        name="critics",
        statement="Capsules, not their convolutions, withstand affine changes.",
        protocol="affine: one part of the network is removed at a time, after Gu, Tresp and Hu 2021",
        recipe="torchcaps reproduce critics",
        control="ConvNet-FC, ConvNet-CR, ConvNet-CR-SF and ConvNet-Avg with the same convolutions",
        comparisons=tuple(
            between("critics", "CapsNet", label, "accuracy on affine_mnist", 10_000)
            for label in ("CapsNet, no routing", "ConvNet-FC", "ConvNet-CR", "ConvNet-CR-SF", "ConvNet-Avg")
        ),
    )
)
add_claim(
    LectureClaim(
        name="parse_tree",
        statement="Routing assembles the parts of each image, at any depth.",
        protocol="parse_tree: accuracy, variation of the coupling over images, starved capsules; after Mitterreiter et "
        "al. 2023",
        recipe="torchcaps reproduce parse_tree",
        control="the same layers with uniform coupling",
        comparisons=tuple(
            between("parse_tree", label, f"{label}, uniform coupling", "accuracy", 10_000)
            for label in ("1 further layer", "3 further layers", "5 further layers")
        ),
        caveat="A minute of training for each network.",
    )
)
